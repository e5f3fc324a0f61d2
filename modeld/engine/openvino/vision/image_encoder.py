"""Vision with OpenVINO: the vision graph of a folder makes rows of an image, which stand where its ids stand.

Which pixels it gets is said by the model's family (`views`). Rows are kept by the image's content: they are needed
again with every prompt that holds it, also where the pipeline's memory does.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from modeld.engine.contract import Aborted, AbortFlag
from modeld.engine.images import PromptImage, VisionUnusable, image_ids
from modeld.engine.openvino.library import Library, reason_of
from modeld.engine.openvino.pipeline import Plan
from modeld.engine.openvino.vision.image_decode import read_optics, squares
from modeld.engine.openvino.vision.image_tiles import Family, View
from shared.catalog.multi_graph import IMAGES
from shared.errors import EngineFailed

#: How often a cancel is looked for while a square is encoded.
_LOOK_MS = 20
_ALIVE_LOOKS = 50


class ImageEncoder:
    """`modeld.engine.contract.ImageEncoder` for one folder."""

    def __init__(
        self,
        library: Library,
        folder: Path,
        family: Family,
        plan: Plan,
        width: int,
        tokenize: Callable[[str], list[int]],
    ) -> None:
        """Loads the graph and looks once. `width`: of the model's rows; `tokenize` reads words with their marks.

        Raises VisionUnusable.
        """
        self.mark = f"<__media_{secrets.token_hex(8)}__>"
        self._family = family
        self._tokenize = tokenize
        self._known: OrderedDict[bytes, Any] = OrderedDict()
        self._most = plan.num_ctx
        self._shown: dict[int, PromptImage] = {}
        try:
            self._optics = read_optics(folder)
            self._request = library.graph(folder / f"{IMAGES}.xml", plan.device, plan.threads)
            self._square = self._look_once(width)
        except ImportError as error:
            raise VisionUnusable(f"Pillow, which decodes them, cannot be used ({error})") from error
        except (RuntimeError, OSError, ValueError, msgspec.MsgspecError) as error:
            raise VisionUnusable(reason_of(error)) from error

    def _look_once(self, width: int) -> int:
        """Tokens of one square; it proves that the graph computes."""
        import numpy as np

        side = self._optics.side
        rows = self._request.infer([np.zeros((1, 3, side, side), np.float32)])[0]
        if rows.ndim != 3 or (rows.shape[0], rows.shape[2]) != (1, width):
            raise ValueError(f"the graph makes {list(rows.shape)} of a square, not rows of {width}")
        return int(rows.shape[1])

    # --- what a prompt holds -----------------------------------------------------------------------

    def ids(self, text: str, images: Sequence[PromptImage]) -> list[int]:
        """As the contract says. From any thread."""
        framed = text.replace(self.mark, f"{self._family.before}{self.mark}{self._family.after}")
        first, *others = framed.split(self.mark)
        found = self._tokenize(first)
        for image, words in zip(images, others, strict=True):
            found += image_ids(image.digest, 0, self._square * len(self._views(image)))
            found += self._tokenize(words)
        return found

    def _views(self, image: PromptImage) -> list[View]:
        return self._family.views(image.width, image.height, self._optics.side)

    # --- one turn ----------------------------------------------------------------------------------

    def show(self, tokens: Sequence[int], images: Sequence[PromptImage]) -> None:
        """As the contract says."""
        del tokens  # an image's first id follows from its content
        self._shown = {image_ids(image.digest, 0, 1)[0]: image for image in images}

    def hide(self) -> None:
        """Forget what was shown; as many rows are kept as a conversation can have, the latest used."""
        self._shown = {}
        while sum(map(len, self._known.values())) > self._most:
            self._known.popitem(last=False)

    def encode(self, abort: AbortFlag, alive: Callable[[], None]) -> None:
        """Make the rows that are shown and not known; `alive` is called now and then.

        Raises ImageUnusable, EngineFailed, Aborted.
        """
        for image in self._shown.values():
            if image.digest not in self._known:
                self._known[image.digest] = self._encoded(image, abort, alive)
            self._known.move_to_end(image.digest)

    def rows(self, first: int) -> Any:
        """Of the shown image whose first id is `first`: the shape is (tokens, width)."""
        return self._known[self._shown[first].digest]

    def _encoded(self, image: PromptImage, abort: AbortFlag, alive: Callable[[], None]) -> Any:
        import numpy as np

        made = [self._run(pixels, abort, alive) for pixels in squares(image, self._views(image), self._optics)]
        return np.concatenate(made)

    def _run(self, pixels: Any, abort: AbortFlag, alive: Callable[[], None]) -> Any:
        try:
            self._request.start_async([pixels])
            looks = 0
            while not abort and not self._request.wait_for(_LOOK_MS):
                looks += 1
                if looks % _ALIVE_LOOKS == 0:
                    alive()
            if abort:
                self._stop()
                raise Aborted
            return self._request.get_output_tensor().data[0].copy()
        except RuntimeError as error:
            raise EngineFailed(reason=reason_of(error)) from error

    def _stop(self) -> None:
        self._request.cancel()
        with suppress(RuntimeError):  # says that it was cancelled
            self._request.wait()
