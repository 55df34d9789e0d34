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


def option(panel: str, text: str, *names: str, **more: Any) -> Any:
    """An option of some panel of the help."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
Json = Annotated[bool, option(OUTPUT, "Print one machine-readable document.", "--json")]
Quiet = Annotated[bool, option(OUTPUT, "Show no progress.", "--quiet")]
Seed = Annotated[int, option(SEARCH, "The seed of whatever is random.")]
Timeout = Annotated[
    float | None,
    option(
        SEARCH,
        "Seconds for a question. 45 by default, and no limit with --max-nodes.",
        min=0.001,
    ),
]
MaxNodes = Annotated[
    int | None,
    option(SEARCH, "Nodes of branch and bound for a question: repeatable.", min=1),
]
Out = Annotated[Path | None, option(OUTPUT, "A folder for the result, made if need be.")]

GranularityName = Literal["auto", "neuron", "filter"]
Granularity = Annotated[GranularityName, option(COMPONENTS, "What a component is.")]
Outputs = Annotated[bool, option(COMPONENTS, "Whether output units are components.")]
Shortcuts = Annotated[
    bool, option(COMPONENTS, "Whether projections on shortcut paths are cut into components.")
]

Data = Annotated[
    Path,
    option(
        DATA,
        "An .npz file with inputs 'x' and, if there are any, labels 'y'; an .npy file; an image; "
        "or a folder of images, sub-folders being classes.",
    ),
]
Index = Annotated[str | None, option(DATA, "Which inputs, such as 0,1,2. All by default.")]
ScaleBy = Annotated[
    float | None,
    option(DATA, "Divide the data by this first. By default 255 for images, 1 for arrays."),
]
Mean = Annotated[
    str | None,
    option(DATA, "The network takes (pixel - mean) / std: one mean, or one for each channel."),
]
Std = Annotated[str | None, option(DATA, "The standard deviation of that.")]

NormName = Literal["inf", "2", "1"]
EpsScaleName = Literal["pixel", "input"]
MetricName = Literal["logit-difference", "winner-margin", "max-abs", "norm-1", "norm-2"]
PatchingName = Literal["zero", "mean", "reachable", "interval"]
Eps = Annotated[float, option(CLAIM, "How far inputs may move.", min=0)]
Norm = Annotated[NormName, option(CLAIM, "By which norm.")]
Clip = Annotated[str | None, option(CLAIM, "Ends of the pixels, in their own scale, such as 0,1.")]
EpsScale = Annotated[
    EpsScaleName, option(CLAIM, "Whether eps is meant before or after --mean and --std.")
]
Metric = Annotated[MetricName, option(CLAIM, "How outputs are compared.")]
Delta = Annotated[float, option(CLAIM, "How far apart outputs may be.", min=0)]
Target = Annotated[str, option(CLAIM, "Of which output: a number, 'label' or 'predicted'.")]
MarginFraction = Annotated[
    float, option(CLAIM, "The share of its lead the winner keeps.", min=0, max=1)
]
Patching = Annotated[
    PatchingName,
    option(
        CLAIM, "What removed components output. Only with interval do bounds need no assumption."
    ),
]
PatchEps = Annotated[
    float | None,
    option(
        CLAIM, "The radius that patches come from (reachable, interval). As eps by default.", min=0
    ),
]
PatchData = Annotated[
    Path | None,
    option(CLAIM, "Data, as for --data, over which means are taken (mean). The data by default."),
]

Algorithm = Annotated[
    Literal["greedy", "exhaustive", "binary-search", "blocking-sets", "hitting-set"],
    option(SEARCH, "The search."),
]
Method = Annotated[
    Literal["proof", "sampling"],
    option(SEARCH, "Prove, or only try at the inputs themselves."),
]
Points = Annotated[int, option(SEARCH, "Random points tried besides each input (sampling).", min=0)]
Order = Annotated[
    Literal["paper", "attribution", "random"], option(SEARCH, "Which component is tried first.")
]
TMax = Annotated[int, option(SEARCH, "Size of blocking sets listed.", min=1)]
LocalCheck = Annotated[
    bool,
    option(SEARCH, "Ask in the end about each component not shown necessary.", "--local-check"),
]
AssumeMonotone = Annotated[
    bool,
    option(
        SEARCH,
        "Draw conclusions as if larger circuits never broke; they say so.",
        "--assume-monotone",
    ),
]
BlockingSet = Annotated[
    bool,
    option(SEARCH, "Also find a smallest set whose removal breaks the network.", "--blocking-set"),
]
Budget = Annotated[float | None, option(SEARCH, "Seconds for the whole search.", min=0.001)]
Certify = Annotated[
    bool,
    option(
        SEARCH,
        "Prove the result once more as a certificate, and have the checker accept it.",
        "--certify/--no-certify",
    ),
]
CertifyTimeout = Annotated[
    float | None,
    option(
        SEARCH,
        "Seconds for the certificate. As long as the search took and at least 10 by default.",
        min=0.001,
    ),
]
Workers = Annotated[int, option(SEARCH, "Processes that answer questions.", min=1)]
Journal = Annotated[
    Path | None,
    option(
        SEARCH,
        "A file that keeps each verdict as it is reached: the same call goes on from there. By "
        "default in the folder of --out.",
    ),
]
Dask = Annotated[
    str | None,
    option(
        SEARCH, "Use the workers of a Dask cluster, such as tcp://host:8786.", metavar="ADDRESS"
    ),
]
