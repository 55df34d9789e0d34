"""Networks and data to work with: toy networks, and MNIST."""

from provable_circuits.zoo.digits import Digits, load_digits
from provable_circuits.zoo.mnist import MnistNet, mnist_network, mnist_record
from provable_circuits.zoo.toy import ToyNetwork, counterexample_network, xor_network

__all__ = [
    "Digits",
    "MnistNet",
    "ToyNetwork",
    "counterexample_network",
    "load_digits",
    "mnist_network",
    "mnist_record",
    "xor_network",
]
