"""A circuit of an ONNX file: no PyTorch module is needed."""

import tempfile
from pathlib import Path

import torch

import provable_circuits as pc
from provable_circuits.properties.export import export_query
from provable_circuits.zoo import load_digits, mnist_network


def work_in(folder: Path) -> None:
    """Read a network from a file, find a circuit, write the question for other verifiers."""
    mnist_network().to_onnx(folder / "net.onnx")  # stands for a file of your own

    graph = pc.Graph.from_onnx(folder / "net.onnx")
    print(graph)
    print(graph.components())
    digits = load_digits()
    claim = pc.Claim(
        inputs=[pc.Ball(x, eps=0.01, clip=(0, 1)) for x in digits.images[digits.labels == 3][:2]],
        patching=pc.Zero(),
        metric=pc.LogitDifference(tolerance=2.0),  # of what the network itself chooses
    )
    result = pc.discover(graph, claim)
    print(result.circuit)

    (folder / "circuit.json").write_text(result.circuit.to_json())
    again = pc.Circuit.from_json((folder / "circuit.json").read_text(), graph.components())
    print("read back:", again == result.circuit)

    query = pc.Verifier(graph.components(), claim).encoder.encode(result.circuit)
    for pair in export_query(query, folder / "query"):
        print(f"for any verifier: {pair.onnx.name} with {pair.vnnlib.name}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        work_in(Path(name))
