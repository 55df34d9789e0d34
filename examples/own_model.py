"""A circuit of one's own PyTorch model: train a small CNN on digits, find a circuit, prove it."""

import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.zoo import Digits, load_digits


def trained(digits: Digits) -> nn.Module:
    """A small convolutional network after a few seconds of training."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 12, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(192, 10),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(2):
        for part in torch.randperm(len(digits)).split(64):
            loss = nn.functional.cross_entropy(net(digits.images[part]), digits.labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net.eval()


def main() -> None:
    """Ask which filters it takes to recognise three sevens, however their pixels move a little."""
    torch.set_num_threads(1)
    net, test = trained(load_digits(split="train")), load_digits()
    right = net(test.images).argmax(1) == test.labels
    print(f"accuracy {right.float().mean():.0%}")

    graph = pc.Graph.from_torch(net, torch.zeros(1, 784))
    sevens = test.images[(test.labels == 7) & right][:3]
    claim = pc.Claim(
        inputs=[pc.Ball(x, eps=0.01, clip=(0, 1)) for x in sevens],
        patching=pc.Zero(),
        metric=pc.LogitDifference(tolerance=2.0, target=7),
    )
    result = pc.discover(graph, claim, granularity="filter", timeout=10)
    print(result)
    print("asked again from scratch:", pc.verify(graph, result.circuit, claim).kind)


if __name__ == "__main__":
    main()
