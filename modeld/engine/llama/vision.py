"""Vision: a projector beside the model, by llama.cpp's own multimodal library. Worker only.

Where an image belongs the rendered prompt holds a mark; the library says which tokens of words stand around it and
how many it takes itself. An image that is warm is neither decoded nor encoded again: its size is enough to count it.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from modeld.engine.contract import Aborted, AbortFlag
from modeld.engine.images import PromptImage, VisionUnusable, begins, image_ids
from modeld.engine.llama.library import Library, set_fields
from modeld.engine.llama.model import ContextPlan
from shared.catalog.identity import RequestedIdentity
from shared.errors import EngineFailed, ImageUnusable, UnsupportedFeature

_TEXT, _IMAGE = 0, 1  # mtmd_input_chunk_type
_STOPPED = 2  # as llama_decode answers when it was aborted
#: A cancel is looked for once in so many nodes of the encoder's graph; each look splits the graph there.
_NODES = 16
#: Seconds between two signs of life while an image is encoded.
_ALIVE = 1.0


class ImageEncoder:
    """`modeld.engine.contract.ImageEncoder` for one model and its projector. Close it before the model."""

    def __init__(self, library: Library, model: Any, path: str, *, threads: int, batch: int, gpu: bool) -> None:
        """Loads the projector. `batch`: tokens evaluated at once. Raises VisionUnusable."""
        self._api = library.api
        self._mtmd = _binding()
        self._mtmd.mtmd_helper_log_set(library.log_callback, None)
        self._batch = batch
        self._abort: AbortFlag | None = None
        self._alive: Callable[[], None] = _nothing
        self._reported_at, self._nodes = 0.0, 0
        self._shown: dict[int, tuple[PromptImage, int]] = {}
        self._opened: tuple[bytes, Any] | None = None
        self.mark = f"<__media_{secrets.token_hex(8)}__>"
        self._callback = self._mtmd.llama_cpp.ggml_backend_sched_eval_callback(self._look)
        self._context = self._open(library, model, path, threads, gpu)

    def _open(self, library: Library, model: Any, path: str, threads: int, gpu: bool) -> Any:
        mtmd = self._mtmd
        params = mtmd.mtmd_context_params_default()
        set_fields(
            params,
            use_gpu=gpu,
            print_timings=False,
            n_threads=threads,
            media_marker=self.mark.encode(),
            cb_eval=self._callback,
        )
        context = mtmd.mtmd_init_from_file(os.fsencode(path), model, params)
        if not context:
            raise VisionUnusable(library.tap.take_reason("llama.cpp cannot read it"))
        if not mtmd.mtmd_support_vision(context):
            mtmd.mtmd_free(context)
            raise VisionUnusable("it is not for images")
        return context

    # --- what a prompt holds -----------------------------------------------------------------------

    def ids(self, text: str, images: Sequence[PromptImage]) -> list[int]:
        """As the contract says. From any thread."""
        mtmd, found = self._mtmd, []
        parts = [0] * len(images)
        bitmaps = [mtmd.mtmd_bitmap_init(one.width, one.height, None) for one in images]
        try:
            for place, bitmap in enumerate(bitmaps):
                mtmd.mtmd_bitmap_set_id(bitmap, str(place).encode())
            with self._chunks(text, bitmaps, images) as chunks:
                for chunk in self._each(chunks):
                    if mtmd.mtmd_input_chunk_get_type(chunk) == _TEXT:
                        found += self._words(chunk)
                        continue
                    place = int(mtmd.mtmd_input_chunk_get_id(chunk))
                    count = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
                    self._refuse_wide(chunk, count)
                    taken = mtmd.mtmd_input_chunk_get_n_pos(chunk)
                    found += image_ids(images[place].digest, parts[place], count, taken)
                    parts[place] += 1
        finally:
            for bitmap in bitmaps:
                mtmd.mtmd_bitmap_free(bitmap)
        return found

    def _refuse_wide(self, chunk: Any, count: int) -> None:
        if count > self._batch and self._mtmd.mtmd_decode_use_non_causal(self._context, chunk):
            raise UnsupportedFeature(feature=f"an image of {count} tokens in batches of {self._batch}")

    def _words(self, chunk: Any) -> list[int]:
        count = ctypes.c_size_t()
        tokens = self._mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
        return list(tokens[: count.value])

    def _each(self, chunks: Any) -> Iterator[Any]:
        for place in range(self._mtmd.mtmd_input_chunks_size(chunks)):
            yield self._mtmd.mtmd_input_chunks_get(chunks, place)

    @contextmanager
    def _chunks(self, text: str, bitmaps: Sequence[Any], images: Sequence[PromptImage]) -> Iterator[Any]:
        chunks = self._tokenized(text, bitmaps, images)
        try:
            yield chunks
        finally:
            self._mtmd.mtmd_input_chunks_free(chunks)

    def _tokenized(self, text: str, bitmaps: Sequence[Any], images: Sequence[PromptImage]) -> Any:
        mtmd, data = self._mtmd, text.encode("utf-8", "replace")
        prompt = mtmd.mtmd_input_text(text=data, text_len=len(data), add_special=False, parse_special=True)
        given = (mtmd.mtmd_bitmap_p_ctypes * len(bitmaps))(*bitmaps)
        chunks = mtmd.mtmd_input_chunks_init()
        if mtmd.mtmd_tokenize(self._context, chunks, ctypes.byref(prompt), given, len(bitmaps)) != 0:
            mtmd.mtmd_input_chunks_free(chunks)
            sizes = ", ".join(f"{one.width} x {one.height}" for one in images)
            raise ImageUnusable(reason=f"the projector refuses it ({sizes} pixels)", index=images[0].index)
        return chunks

    # --- one turn ----------------------------------------------------------------------------------

    def show(self, tokens: Sequence[int], images: Sequence[PromptImage]) -> None:
        """As the contract says."""
        self.hide()
        place, part = -1, 0
        for token in tokens:
            if not begins(token):
                continue
            following = images[place + 1].digest if place + 1 < len(images) else None
            if following is not None and token == image_ids(following, 0, 1)[0]:
                place, part = place + 1, 0
            else:
                part += 1
            self._shown[token] = images[place], part

    def hide(self) -> None:
        """Forget what was shown; what was decoded of it is freed."""
        self._shown.clear()
        if self._opened is not None:
            self._mtmd.mtmd_input_chunks_free(self._opened[1])
            self._opened = None

    def encode(self, first: int, abort: AbortFlag, alive: Callable[[], None]) -> Any:
        """The image, or part of one, whose first id is `first`, ready for `decode`; `alive` is called now and then.

        Raises ImageUnusable, Aborted.
        """
        image, part = self._shown[first]
        self._abort, self._alive, self._reported_at = abort, alive, time.monotonic()
        try:
            chunk = self._chunk(image, part)
            if abort:
                raise Aborted
            done = self._mtmd.mtmd_encode_chunk(self._context, chunk)
        finally:
            self._abort, self._alive = None, _nothing
        if abort:
            raise Aborted
        if done != 0:
            raise EngineFailed(reason=f"the projector's encoder answered {done}")
        return chunk

    def _chunk(self, image: PromptImage, part: int) -> Any:
        if self._opened is None or self._opened[0] != image.digest:
            if self._opened is not None:
                self._mtmd.mtmd_input_chunks_free(self._opened[1])
                self._opened = None
            self._opened = image.digest, self._decoded(image)
        images = [one for one in self._each(self._opened[1]) if self._mtmd.mtmd_input_chunk_get_type(one) == _IMAGE]
        return images[part]

    def _decoded(self, image: PromptImage) -> Any:
        mtmd, size = self._mtmd, len(image.data)
        options = mtmd.mtmd_helper_init_opt_default()
        # what is no image would be handed to another program as a film: there is none by this name
        options.video_params.ffmpeg_bin_dir = os.devnull.encode()
        data = (ctypes.c_uint8 * size).from_buffer_copy(image.data)
        bitmap = mtmd.mtmd_helper_bitmap_init_from_buf(self._context, data, size, False, options)
        if not bitmap:
            raise ImageUnusable(reason="it cannot be decoded", index=image.index)
        try:
            if (mtmd.mtmd_bitmap_get_nx(bitmap), mtmd.mtmd_bitmap_get_ny(bitmap)) != (image.width, image.height):
                raise ImageUnusable(reason="it is not as large as it says", index=image.index)
            return self._tokenized(self.mark, [bitmap], [image])
        finally:
            mtmd.mtmd_bitmap_free(bitmap)

    def decode(self, context: Any, chunk: Any, sequence: int, start: int, on_batch: Callable[[int], bool]) -> int:
        """Evaluate what was encoded last, from position `start` of a lane on; llama_decode's answer.

        `on_batch` hears of the tokens of each batch and answers whether to go on. On any answer but 0 some batches may
        lie in the memory.
        """
        mtmd, after = self._mtmd, self._mtmd.llama_cpp.llama_pos()

        def batch(view: Any, _: object) -> int:
            return 0 if on_batch(view.contents.n_tokens) else _STOPPED

        callback = mtmd.mtmd_helper_post_decode_callback(batch)
        embedding = mtmd.mtmd_get_output_embd(self._context)
        done: int = mtmd.mtmd_helper_decode_image_chunk(
            self._context, context, chunk, embedding, start, sequence, self._batch, ctypes.byref(after), callback, None
        )
        return done

    def _look(self, _tensor: Any, asked: bool, _data: Any) -> bool:
        """Called before (`asked`) and after nodes of the encoder: a false answer after one ends the graph."""
        if asked:
            self._nodes += 1
            return self._nodes % _NODES == 0
        now = time.monotonic()
        if now - self._reported_at > _ALIVE:
            self._reported_at = now
            self._alive()
        return not self._abort

    def close(self) -> None:
        """Free everything; safe twice."""
        self.hide()
        if self._context:
            self._mtmd.mtmd_free(self._context)
            self._context = None


def open_image_encoder(
    library: Library, model: Any, plan: ContextPlan, asked: RequestedIdentity
) -> tuple[ImageEncoder | None, tuple[str, ...]]:
    """The projector that is asked for. One that cannot be used leaves a model for words, which a warning says."""
    gpu = bool(library.api.llama_supports_gpu_offload()) and asked.device != "CPU"
    try:
        return ImageEncoder(library, model, asked.projector, threads=plan.threads, batch=plan.batch, gpu=gpu), ()
    except VisionUnusable as error:
        name = os.path.basename(asked.projector)
        return None, (f"images are refused: the projector {name} cannot be used: {error}",)


def _nothing() -> None:
    return None


def _binding() -> Any:
    try:
        return importlib.import_module("llama_cpp.mtmd_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise VisionUnusable(f"this build of llama.cpp has no vision ({type(error).__name__}: {error})") from error
