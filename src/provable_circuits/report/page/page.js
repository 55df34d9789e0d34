"use strict";
// Hovering or focusing a component tells its status; selecting it shows its panel.
(() => {
  const drawing = document.querySelector(".drawing svg");
  const line = document.getElementById("status-line");
  const announcement = document.getElementById("announcement");
  const components = Array.from(drawing.querySelectorAll(".component"));
  const panels = new Map();
  for (const panel of document.querySelectorAll(".component-panel")) {
    panels.set(panel.dataset.component, panel);
  }
  let selected = null;

  const panelOf = (component) => panels.get(component.dataset.component);
  const words = (component) =>
    `${component.dataset.component}: ${panelOf(component).dataset.line}`;

  function tell(component) {
    line.textContent = component ? words(component) : "No component is selected.";
  }

  function select(component) {
    if (selected) {
      selected.setAttribute("aria-pressed", "false");
      selected.classList.remove("selected");
      panelOf(selected).hidden = true;
    }
    selected = component;
    component.setAttribute("aria-pressed", "true");
    component.classList.add("selected");
    panelOf(component).hidden = false;
    reach(component);
    tell(component);
  }

  // One component is in the order of Tab; the arrow keys lead from there to the others.
  function reach(component) {
    for (const other of components) {
      other.setAttribute("tabindex", other === component ? "0" : "-1");
    }
  }

  function middle(component) {
    const box = component.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  }

  // The nearest component in a direction; a step aside counts more than one ahead.
  function nearest(component, [right, down]) {
    const [x, y] = middle(component);
    let best = null;
    let least = Infinity;
    for (const other of components) {
      const [u, v] = middle(other);
      const ahead = (u - x) * right + (v - y) * down;
      const aside = Math.abs((u - x) * down) + Math.abs((v - y) * right);
      const distance = ahead + 3 * aside;
      if (ahead > 1 && distance < least) {
        best = other;
        least = distance;
      }
    }
    return best;
  }

  const directions = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, -1],
    ArrowDown: [0, 1],
  };

  function onKey(event, component) {
    let next = null;
    if (event.key === "Enter" || event.key === " ") {
      choose(component);
    } else if (event.key === "Home") {
      next = components[0];
    } else if (event.key === "End") {
      next = components[components.length - 1];
    } else if (event.key in directions) {
      next = nearest(component, directions[event.key]) || component;
    } else {
      return;
    }
    event.preventDefault();
    if (next) {
      reach(next);
      next.focus();
    }
  }

  function choose(component) {
    select(component);
    announcement.textContent = `Selected ${words(component)}.`;
  }

  for (const component of components) {
    component.setAttribute("aria-label", words(component));
    component.setAttribute("aria-pressed", "false");
    component.addEventListener("mouseenter", () => tell(component));
    component.addEventListener("mouseleave", () => tell(selected));
    component.addEventListener("focus", () => tell(component));
    component.addEventListener("blur", () => tell(selected));
    component.addEventListener("click", () => choose(component));
    component.addEventListener("keydown", (event) => onKey(event, component));
  }

  // Begin with a component that has something to show: the first whose panel holds a witness.
  const first = components.find((c) => panelOf(c).querySelector(".outputs")) || components[0];
  if (first) {
    select(first);
  }
})();
