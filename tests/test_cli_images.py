"""Images as inputs of ``provable-circuits discover``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import provable_circuits as pc
from provable_circuits.cli.inputs import open_source

Run = Callable[..., tuple[int, str, str]]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def photo(seed: int, height: int = 4, width: int = 5) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks for colour, grey and flat images, and images of all kinds."""
    made = tmp_path_factory.mktemp("images")
    torch.manual_seed(3)
    for name, channels in (("colour", 3), ("grey", 1)):
        net = nn.Sequential(nn.Conv2d(channels, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
        pc.Graph.from_torch(net, torch.zeros(1, channels, 4, 5)).to_onnx(made / f"{name}.onnx")
    flat = nn.Sequential(nn.Linear(20, 3))
    pc.Graph.from_torch(flat, torch.zeros(1, 20)).to_onnx(made / "flat.onnx")
    for place in ("plain", "named/cat", "named/dog", "numbered/2", "numbered/0", "mixed/0"):
        (made / place).mkdir(parents=True)
        for seed, name in enumerate(("a.png", "b.PNG")):
            Image.fromarray(photo(seed)).save(made / place / name)
    Image.fromarray(photo(9)).save(made / "mixed" / "c.png")
    (made / "plain" / "notes.txt").write_text("no image")
    (made / "plain" / ".hidden.png").write_text("no image")
    (made / "bare").mkdir()
    (made / "hollow" / "cat").mkdir(parents=True)
    image = Image.fromarray(photo(0))
    image.save(made / "photo.png")
    image.convert("P", palette=Image.Palette.ADAPTIVE).save(made / "palette.png")
    image.convert("RGBA").save(made / "opaque.png")
    image.convert("L").save(made / "grey.png")
    image.convert("1").save(made / "bits.png")
    clear = image.convert("RGBA")
    clear.putalpha(99)
    clear.save(made / "clear.png")
    deep = photo(0)[:, :, 0].astype(np.uint16) * 257
    Image.fromarray(deep).save(made / "deep.png")
    Image.fromarray(photo(0, 5, 4)).save(made / "tall.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(photo(0, 5, 4)).save(made / "turned.png", exif=turned)
    image.save(made / "moving.gif", save_all=True, append_images=[Image.fromarray(photo(1))])
    (made / "broken.png").write_text("not at all")
    (made / "cut.png").write_bytes((made / "photo.png").read_bytes()[:70])
    np.save(made / "one.npy", photo(0).transpose(2, 0, 1))
    np.save(made / "two.npy", np.stack([photo(0), photo(1)]).transpose(0, 3, 1, 2))
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, program: Run, folder: Path) -> Run:
    """Calls discover in that folder; exit code and both streams."""
    monkeypatch.chdir(folder)
    return partial(program, "discover")


def pixels(folder: Path, network: str, file: str) -> torch.Tensor:
    graph = pc.Graph.from_onnx(folder / f"{network}.onnx")
    source = open_source(folder / file, graph, None)
    return source.pixels(range(source.count))


@pytest.mark.parametrize("file", ["photo.png", "opaque.png", "plain"])
def test_colours_come_first_and_white_is_one(folder: Path, file: str) -> None:
    found = pixels(folder, "colour", file)
    wanted = photo(0).transpose(2, 0, 1) / 255
    np.testing.assert_array_equal(found[0].numpy(), wanted)


def test_grey_is_pillows_grey(folder: Path) -> None:
    wanted = np.asarray(Image.fromarray(photo(0)).convert("L")) / 255
    np.testing.assert_array_equal(pixels(folder, "grey", "photo.png")[0, 0].numpy(), wanted)
    np.testing.assert_array_equal(pixels(folder, "flat", "photo.png")[0].numpy(), wanted.flatten())
    three = pixels(folder, "colour", "grey.png")[0]
    np.testing.assert_array_equal(three.numpy(), np.stack([wanted] * 3))


def test_palettes_bits_and_turned_photos(folder: Path) -> None:
    wanted = np.asarray(Image.open(folder / "palette.png").convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(pixels(folder, "colour", "palette.png")[0].numpy(), wanted / 255)
    assert set(pixels(folder, "grey", "bits.png").unique().tolist()) <= {0.0, 1.0}
    upright = np.rot90(photo(0, 5, 4), -1).transpose(2, 0, 1)
    np.testing.assert_array_equal(pixels(folder, "colour", "turned.png")[0].numpy(), upright / 255)


def test_arrays_of_one_input_and_of_several(folder: Path) -> None:
    np.testing.assert_array_equal(
        pixels(folder, "colour", "one.npy").numpy(), photo(0).transpose(2, 0, 1)[None]
    )
    assert pixels(folder, "colour", "two.npy").shape == (2, 3, 4, 5)


def test_folders_are_classes(run: Run) -> None:
    code, out, err = run("colour.onnx", "--data", "named", "--target", "label", "--json")
    assert (code, err) == (0, "")
    settings = json.loads(out)["settings"]
    assert settings["files"] == ["cat/a.png", "cat/b.PNG", "dog/a.png", "dog/b.PNG"]
    assert settings["scale"] == 255
    code, out, _ = run("colour.onnx", "--data", "named", "--index", "1,2")
    assert code == 0
    assert "Classes: cat is 0, dog is 1" in out
    graph = pc.Graph.from_onnx("colour.onnx")
    assert open_source(Path("named"), graph, None).labels is not None
    numbered = open_source(Path("numbered"), graph, None)
    assert numbered.labels is not None
    assert numbered.labels.tolist() == [0, 0, 2, 2]
    assert numbered.notes == ()


def test_the_scale_is_told_and_can_be_chosen(run: Run) -> None:
    code, out, _ = run("colour.onnx", "--data", "photo.png")
    assert code == 0
    assert (
        "Scale: epsilon 0.01 in the scale of the network's inputs, the data divided by 255" in out
    )
    code, out, _ = run("colour.onnx", "--data", "photo.png", "--scale", "1", "--eps", "2")
    assert "Scale: epsilon 2 in the scale of the network's inputs\n" in out


def test_images_are_the_claim_that_python_states(run: Run) -> None:
    code, out, _ = run(
        *("colour.onnx", "--data", "plain", "--patch-data", "named", "--patching", "mean"),
        *("--mean", "0.5", "--std", "0.25", "--clip", "0,1", "--delta", "0.05", "--json"),
    )
    assert code == 0
    graph = pc.Graph.from_onnx("colour.onnx")
    x = torch.from_numpy(np.stack([photo(0), photo(1)]).transpose(0, 3, 1, 2) / 255)
    normal = (x - 0.5) / 0.25
    claim = pc.Claim(
        [pc.Ball(v, 0.04, clip=(-2.0, 2.0)) for v in normal],
        pc.Mean(torch.cat([normal, normal])),
        pc.LogitDifference(0.05),
    )
    names = json.loads(out)["circuit"]["components"]
    assert names == list(pc.discover(graph, claim).circuit.names)


def test_what_is_no_image_is_left_out_and_told(run: Run) -> None:
    code, out, _ = run("colour.onnx", "--data", "plain")
    assert code == 0
    assert "Left out: 1 file(s) that are no images (notes.txt)" in out


@pytest.mark.parametrize(
    ("network", "file", "message"),
    [
        ("colour", "tall.png", "5 high and 4 wide, and the network takes RGB images 4 high and 5"),
        ("colour", "deep.png", "does not have 8 bits per channel"),
        ("colour", "clear.png", "has transparent pixels"),
        ("colour", "moving.gif", "has several frames"),
        ("colour", "broken.png", "is not an image that can be read"),
        ("colour", "cut.png", "cannot be read"),
        ("colour", "bare", "holds no images"),
        ("colour", "hollow", "hold no images"),
        ("colour", "mixed", "both images and folders"),
        ("colour", "missing.png", "There is no file"),
        ("colour", "colour.onnx", "nor an .npy file or an image"),
    ],
)
def test_what_cannot_be_read_is_refused(run: Run, network: str, file: str, message: str) -> None:
    code, out, err = run(f"{network}.onnx", "--data", file)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert len(err.splitlines()) == 1


def test_a_huge_picture_is_refused_before_it_is_decoded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in (15, 5):  # Pillow warns above this many pixels, and refuses above twice as many
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        code, _, err = run("colour.onnx", "--data", "photo.png")
        assert code == 2
        assert err == "Error: The image 'photo.png' is far too large.\n"


def test_only_chosen_images_are_decoded(run: Run) -> None:
    """The folder's other images may be broken, or many."""
    Path("some").mkdir(exist_ok=True)
    Image.fromarray(photo(0)).save("some/a.png")
    Path("some/b.png").write_text("broken")
    assert run("colour.onnx", "--data", "some", "--index", "0")[0] == 0
    assert run("colour.onnx", "--data", "some")[0] == 2
