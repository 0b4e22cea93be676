"""Language models: logits of ids, and generated ids.

Tokens run through captured graphs: one for a single token of each sequence, one for a chunk of 16, one for a
chunk of 128. Each serves all positions, since the slot of the cache is a bound variable. The tokens of a
prompt, but for the last, run in chunks; the last one gives the first logits.

Not here: computing (`block`), texts (`tokenizer`). Next: `sampling`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from frontend.autograd.grad_modes import no_grad
from frontend.capture.jit import TinyJit
from frontend.device import LOCK, Device
from frontend.evaluation.plan import PLANS
from frontend.llm.block import KeyValueCache
from frontend.llm.rope import rates
from frontend.llm.sampling import Sampling
from frontend.tensor import Tensor
from frontend.variable import Variable
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    import numpy as np

    from frontend.llm.block import Decoder
    from frontend.llm.description import Description

CHUNKS: Final = (128, 16)
"""Tokens of each sequence that run at once through a prompt."""
LEAST_SLOTS: Final = 256


class Session:
    """A cache of a batch with its captured graphs, and the tokens that are in it."""

    def __init__(self, decoder: Decoder, batch: int, slots: int) -> None:
        import numpy as np  # noqa: PLC0415 - only where models run

        self.decoder, self.batch, self.slots = decoder, batch, slots
        self._plans: dict[Any, None] = {}
        """Keys of the plans of calls that are not captured yet."""
        self._memory = Device[decoder.device].hcq
        with PLANS.noted(self._plans):
            self.cache = KeyValueCache(decoder.d, batch, slots, decoder.device)
        self.graphs: dict[tuple[int, bool], TinyJit[Any, Any]] = {}
        """(tokens, whether logits are wanted) -> the graph."""
        self.ids = np.zeros((batch, slots), np.int32)
        self.starts = np.zeros(batch, np.int32)
        self.end = 0
        """Slots that are filled."""
        self._long = [0] * batch
        """The number of tokens of each row by which the divisors of its rotation were chosen last."""

    def run(self, at: int, tokens: int, *, scored: bool) -> Tensor | None:
        """Run the tokens of the slots from `at` on.

        Return their logits (batch, tokens, vocabulary) if scored, else None. Raises as `Variable.bind` and
        `Tensor`.
        """
        graph = self.graphs.get((tokens, scored))
        if graph is None:
            call = partial(_scored if scored else _filled, self.decoder, self.cache)
            graph = self.graphs[tokens, scored] = TinyJit(call)
        device = self.decoder.device
        slot = Variable(f"slot{tokens}", 0, self.slots - tokens).bind(at, device=device)
        ids = Tensor(self.ids[:, at : at + tokens].copy(), device=device).realize()
        starts = Tensor(self.starts.copy(), device=device).realize()
        found: Tensor | None = self.call(graph, ids, slot, starts)
        return found

    def rotate(self, row: int, tokens: int) -> bool:
        """Choose the rotation of a row by its number of tokens; return whether it is another than before.

        Then the row's tokens have to run again: texts longer than the original context have other divisors.
        """
        before, self._long[row] = self._long[row], tokens
        limits = {rope.original for rope in self.cache.rates if rope.long is not None}
        if not any((before > limit) != (tokens > limit) for limit in limits):
            return False
        for rope, rate in self.cache.rates.items():
            if rope.long is not None:
                rate.assign(rates(rope, self._long, self.decoder.device)).realize()
        return True

    def call(self, graph: TinyJit[Any, Any], *args: Any) -> Any:
        """Call a graph that uses the cache. Once it is captured, drop what only the calls before need."""
        with no_grad():
            replays = graph.captured is not None
            if replays:
                return graph(*args)
            with PLANS.noted(self._plans):
                found = graph(*args)
                Tensor.realize(*self.cache.keys, *self.cache.values, *([] if found is None else [found]))
        if graph.captured is not None:
            self._release()
        return found

    def _release(self) -> None:
        """Drop the plans of the calls so far, and return memory without a buffer to the driver."""
        with LOCK:
            PLANS.evict(self._plans)
        if self._memory.refusal is None:  # open, and not after a fault
            self._memory.trim()

    def close(self) -> None:
        """Free the cache and the graphs; the session is not used any more."""
        self.graphs.clear()
        self.cache.keys, self.cache.values = [], []
        self._release()

    def begin(self, prompts: Sequence[Sequence[int]], spare: int) -> int:
        """Put prompts into the slots, so that all end in the same one; return the first slot to run.

        All but the last `spare` tokens run in chunks. Slots that hold the same tokens need not run again.
        """
        longest = max(map(len, prompts))
        turned = [self.rotate(row, len(prompt)) for row, prompt in enumerate(prompts)]
        same = self._same(prompts[0]) if spare and self.batch == 1 and not turned[0] else 0
        if same:
            first = int(self.starts[0])
            self.ids[0, first : first + longest] = prompts[0]
            self.end = first + longest
            return first + min(same, longest - spare)
        self.end = -(longest - spare) % CHUNKS[-1] + longest
        self.ids[:] = 0
        for i, prompt in enumerate(prompts):
            self.starts[i] = self.end - len(prompt)
            self.ids[i, self.starts[i] : self.end] = prompt
        return 0

    def _same(self, prompt: Sequence[int]) -> int:
        """Return how many tokens of a prompt lie in the slots already; 0 if there is no room for the rest."""
        import numpy as np  # noqa: PLC0415 - as above

        first = int(self.starts[0])
        held = self.ids[0, first : max(first, self.end - 1)]  # the last one has not run
        count = min(len(held), len(prompt))
        differs = np.flatnonzero(held[:count] != np.array(prompt[:count], np.int32))
        return int(differs[0]) if len(differs) else count

    def fill(self, begin: int) -> None:
        """Run the tokens of the slots from `begin` on, but for the last."""
        for at, count in self.chunks(begin, self.end - 1):
            self.run(at, count, scored=count == 1)

    def chunks(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (slot, tokens) of the calls that run the slots begin..end.

        The first may repeat slots before `begin`, which gives the same values again.
        """
        most, least = CHUNKS
        while end - begin >= most:
            yield begin, most
            begin += most
        rest = -(-(end - begin) // least) * least
        if rest > end:
            yield from ((at, 1) for at in range(begin, end))
        else:
            yield from ((at, least) for at in range(end - rest, end, least))


def _filled(decoder: Decoder, cache: KeyValueCache, ids: Tensor, slot: Any, starts: Tensor) -> None:
    decoder.hidden(ids, slot, starts, cache)


def _scored(decoder: Decoder, cache: KeyValueCache, ids: Tensor, slot: Any, starts: Tensor) -> Tensor:
    return decoder.logits(decoder.hidden(ids, slot, starts, cache))


class LanguageModel:
    """A language model on a device; made by `load`.

    Threads: calls from several threads are safe; each generation has a cache of its own.
    """

    def __init__(self, decoder: Decoder, path: str) -> None:
        self.decoder, self.path = decoder, path
        self._idle: Session | None = None
        """The session of the last generation, whose graphs and cache the next one may use."""
        self._lock = threading.Lock()
        """Held while `_idle` is taken: one generation has a session."""

    @property
    def description(self) -> Description:
        """What the model is, without its weights."""
        return self.decoder.d

    def forget(self) -> None:
        """Drop the tokens of the last generation, which the next one would not compute again."""
        if self._idle is not None:
            self._idle.end = 0

    def logits(self, ids: Sequence[int]) -> Tensor:
        """Return the logits (len(ids), vocabulary) float32 after each of some tokens.

        Raises `UsageError` for no ids, more ids than the model has positions, and an id outside the
        vocabulary; `UsageTypeError` for ids that are no whole numbers.
        """
        prompt = self._checked([ids], "logits")[0]
        session = self._session(1, len(prompt))
        session.begin([prompt], 0)
        parts = []
        for at, tokens in session.chunks(0, session.end):
            found = session.run(at, tokens, scored=True)
            assert found is not None  # scored
            parts.append(found[0])
        self._keep(session)
        whole = parts[0].cat(*parts[1:], axis=0) if len(parts) > 1 else parts[0]
        return whole[whole.shape[0] - len(prompt) :]

    def generate(
        self, ids: Sequence[int], *, max_tokens: int = 256,
        temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None,
        stop: Sequence[int] | None = None,
    ) -> Iterator[int]:  # fmt: skip
        """Yield the ids that follow some ids, one by one, as they are computed.

        `temperature`, `top_k` and `top_p` are those of `Sampling`; 0 takes the most probable token. Equal
        seeds give equal texts; None: another text each time. Ends after `max_tokens`, at the model's last
        position, and at an id of `stop` (None: those that the model's settings name), which is not yielded.

        Raises `UsageError` at the call as `logits`, and as `Sampling`.
        """
        batch = self.generate_batch(
            [ids], max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
            stop=stop,
        )  # fmt: skip
        return (token for step in batch for token in step if token is not None)

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], *, max_tokens: int = 256,
        temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None,
        stop: Sequence[int] | None = None,
    ) -> Iterator[list[int | None]]:  # fmt: skip
        """Yield the next id of each of several texts of any lengths, None for those that have ended.

        The ids of a text do not depend on the other texts, but for rounding; its chances are drawn from
        (seed, its number). Arguments, ends and errors (`UsageError`) are those of `generate`.
        """
        import numpy as np  # noqa: PLC0415 - only where models run

        checked = self._checked(prompts, "generate")
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
        if type(max_tokens) is not int or max_tokens < 0:
            raise UsageError(f"generate, max_tokens: wanted a whole number of at least 0, saw {max_tokens!r}")
        if seed is not None and (type(seed) is not int or seed < 0):
            raise UsageError(f"generate, seed: wanted a whole number of at least 0, saw {seed!r}")
        ends = frozenset(self.description.stops if stop is None else _ids(stop, "generate, stop"))
        sequence = np.random.SeedSequence(seed)
        draws = [np.random.default_rng(part) for part in sequence.spawn(len(checked))]
        return self._generated(checked, max_tokens, ends, sampling, draws)

    def _generated(
        self, prompts: list[list[int]], most: int, ends: frozenset[int], sampling: Sampling,
        draws: list[np.random.Generator],
    ) -> Iterator[list[int | None]]:  # fmt: skip
        counts = [min(most, self.description.context - len(p)) for p in prompts]
        session = self._session(len(prompts), max(map(len, prompts)) + max(counts))
        session.fill(session.begin(prompts, 1))
        try:
            for step in range(max(counts)):
                turned = [session.rotate(i, session.end - int(n)) for i, n in enumerate(session.starts)]
                if any(turned):
                    session.fill(0)
                found = session.run(session.end - 1, 1, scored=True)
                assert found is not None  # scored
                tokens: list[int | None] = [None] * len(prompts)
                for i, row in enumerate(found.numpy()[:, 0]):
                    if step < counts[i]:
                        chosen = sampling.choose(row, draws[i])
                        tokens[i] = None if chosen in ends else chosen
                        counts[i] = 0 if chosen in ends else counts[i]
                if all(t is None for t in tokens):
                    return
                session.ids[:, session.end] = [t or 0 for t in tokens]
                session.end += 1
                yield tokens
        finally:
            self._keep(session)

    def _keep(self, session: Session) -> None:
        """Make a session the idle one; close the one that another generation left."""
        with self._lock:
            other, self._idle = self._idle, session
        if other is not None:
            other.close()

    def _session(self, batch: int, tokens: int) -> Session:
        """Return a session with slots for some tokens: the idle one if it fits, which is then in use."""
        wanted = tokens + CHUNKS[-1]
        with self._lock:
            session, self._idle = self._idle, None
        if session is None or session.batch != batch or session.slots < wanted:
            if session is not None:
                session.close()
            slots = max(LEAST_SLOTS, 1 << (wanted - 1).bit_length())
            session = Session(self.decoder, batch, slots)
        return session

    def _checked(self, prompts: Sequence[Sequence[int]], what: str) -> list[list[int]]:
        """Return prompts as lists of ids. Raises as `logits`."""
        d, found = self.description, []
        if not len(prompts):
            raise UsageError(f"{what}: wanted at least one list of ids, saw none")
        for given in prompts:
            prompt = _ids(given, what)
            if not 0 < len(prompt) <= d.context:
                raise UsageError(f"{what}: wanted 1 to {d.context} ids, saw {len(prompt)}")
            if outside := [n for n in prompt if not 0 <= n < d.vocabulary]:
                raise UsageError(f"{what}: the id {outside[0]} is outside the vocabulary of {d.vocabulary}")
            found.append(prompt)
        return found

    def __repr__(self) -> str:
        d = self.description
        sizes = f"{len(d.layers)} layers, width {d.width}"
        return f"<LanguageModel {d.family} of {sizes}, on {self.decoder.device}>"


def _ids(values: Any, what: str) -> list[int]:
    """Return ids as a list. Raises `UsageTypeError` for anything else."""
    try:
        return [int(n.__index__()) for n in values]
    except (AttributeError, TypeError):
        raise UsageTypeError(f"{what}: wanted ids as whole numbers, saw {values!r}"[:200]) from None
