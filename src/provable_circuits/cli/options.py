"""The options of the commands: each is told of once, and reads alike wherever it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

DATA, CLAIM, COMPONENTS = "The data", "The claim", "The components"
SEARCH, OUTPUT = "The search", "Output"


def examples(*lines: str) -> str:
    """Calls that show a command, each on a line of its own."""
    return "\n\n".join(["Examples:", *lines])


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
Json = Annotated[bool, _option(OUTPUT, "Print one machine-readable document.", "--json")]
Quiet = Annotated[bool, _option(OUTPUT, "Show no progress.", "--quiet")]
Seed = Annotated[int, _option(SEARCH, "The seed of whatever is random.")]
Timeout = Annotated[float, _option(SEARCH, "Seconds for a question.", min=0.001)]
Out = Annotated[Path | None, _option(OUTPUT, "A folder for the result, made if need be.")]

GranularityName = Literal["auto", "neuron", "filter"]
Granularity = Annotated[GranularityName, _option(COMPONENTS, "What a component is.")]
Outputs = Annotated[bool, _option(COMPONENTS, "Whether output units are components.")]
Shortcuts = Annotated[
    bool, _option(COMPONENTS, "Whether projections on shortcut paths are cut into components.")
]

Data = Annotated[
    Path,
    _option(
        DATA,
        "An .npz file with inputs 'x' and, if there are any, labels 'y'; an .npy file; an image; "
        "or a folder of images, sub-folders being classes.",
    ),
]
Index = Annotated[str | None, _option(DATA, "Which inputs, such as 0,1,2. All by default.")]
ScaleBy = Annotated[
    float | None,
    _option(DATA, "Divide the data by this first. By default 255 for images, 1 for arrays."),
]
Mean = Annotated[
    str | None,
    _option(DATA, "The network takes (pixel - mean) / std: one mean, or one for each channel."),
]
Std = Annotated[str | None, _option(DATA, "The standard deviation of that.")]

NormName = Literal["inf", "2", "1"]
EpsScaleName = Literal["pixel", "input"]
MetricName = Literal["logit-difference", "winner-margin", "max-abs", "norm-1", "norm-2"]
PatchingName = Literal["zero", "mean", "reachable", "interval"]
Eps = Annotated[float, _option(CLAIM, "How far inputs may move.", min=0)]
Norm = Annotated[NormName, _option(CLAIM, "By which norm.")]
Clip = Annotated[str | None, _option(CLAIM, "Ends of the pixels, in their own scale, such as 0,1.")]
EpsScale = Annotated[
    EpsScaleName, _option(CLAIM, "Whether eps is meant before or after --mean and --std.")
]
Metric = Annotated[MetricName, _option(CLAIM, "How outputs are compared.")]
Delta = Annotated[float, _option(CLAIM, "How far apart outputs may be.", min=0)]
Target = Annotated[str, _option(CLAIM, "Of which output: a number, 'label' or 'predicted'.")]
MarginFraction = Annotated[
    float, _option(CLAIM, "The share of its lead the winner keeps.", min=0, max=1)
]
Patching = Annotated[
    PatchingName,
    _option(
        CLAIM, "What removed components output. Only with interval do bounds need no assumption."
    ),
]
PatchEps = Annotated[
    float | None,
    _option(
        CLAIM, "The radius that patches come from (reachable, interval). As eps by default.", min=0
    ),
]
PatchData = Annotated[
    Path | None,
    _option(CLAIM, "Data, as for --data, over which means are taken (mean). The data by default."),
]

Algorithm = Annotated[
    Literal["greedy", "exhaustive", "binary-search", "blocking-sets", "hitting-set"],
    _option(SEARCH, "The search."),
]
Method = Annotated[
    Literal["proof", "sampling"],
    _option(SEARCH, "Prove, or only try at the inputs themselves."),
]
Points = Annotated[
    int, _option(SEARCH, "Random points tried besides each input (sampling).", min=0)
]
Order = Annotated[
    Literal["paper", "attribution", "random"], _option(SEARCH, "Which component is tried first.")
]
TMax = Annotated[int, _option(SEARCH, "Size of blocking sets listed.", min=1)]
LocalCheck = Annotated[
    bool,
    _option(SEARCH, "Ask in the end about each component not shown necessary.", "--local-check"),
]
AssumeMonotone = Annotated[
    bool,
    _option(
        SEARCH,
        "Draw conclusions as if larger circuits never broke; they say so.",
        "--assume-monotone",
    ),
]
BlockingSet = Annotated[
    bool,
    _option(SEARCH, "Also find a smallest set whose removal breaks the network.", "--blocking-set"),
]
Budget = Annotated[float | None, _option(SEARCH, "Seconds for the whole search.", min=0.001)]
Workers = Annotated[int, _option(SEARCH, "Processes that answer questions.", min=1)]
Dask = Annotated[
    str | None,
    _option(
        SEARCH, "Use the workers of a Dask cluster, such as tcp://host:8786.", metavar="ADDRESS"
    ),
]
