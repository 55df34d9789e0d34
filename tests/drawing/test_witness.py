from __future__ import annotations

import numpy as np

from provable_circuits.drawing.scene import Picture, Scene, Text
from provable_circuits.drawing.witness import witness_picture


def captions(scene: Scene) -> list[str]:
    return [item.text for item in scene.items if isinstance(item, Text)]


def pictures(scene: Scene) -> list[Picture]:
    return [item for item in scene.items if isinstance(item, Picture)]


def test_images_that_are_compared_share_their_scale() -> None:
    clean, moved = np.zeros((8, 8)), np.full((8, 8), -2.0)
    moved[0, 0] = 2.0
    first, second, _ = pictures(witness_picture(clean, moved, title="A witness"))
    assert (first.pixels == 128).all(), "halfway between -2 and 2"
    assert second.pixels[0, 0] == 255
    assert second.pixels[1, 1] == 0


def test_the_input_of_a_patch_is_shown_too() -> None:
    image = np.full(64, 0.5)
    scene = witness_picture(image, image, title="A witness", patch=np.zeros(64))
    assert captions(scene)[1:] == ["clean", "moved", "patched from", "difference, at most 0"]
    assert (pictures(scene)[2].pixels == 0).all()


def test_pictures_are_inside_and_keep_their_shape() -> None:
    wide = np.zeros((1, 27, 54))
    scene = witness_picture(wide, wide, title="A witness")
    for picture in pictures(scene):
        assert picture.width / picture.height == 2
        assert picture.x + picture.width <= scene.width
        assert picture.y + picture.height < scene.height


def test_numbers_that_are_no_image_are_lines() -> None:
    scene = witness_picture([0.0, 1.0, 2.0], [0.0, 1.5, 2.0], title="A witness")
    assert not pictures(scene)
    assert {"clean", "moved", "place in the input", "value"} <= set(captions(scene))
