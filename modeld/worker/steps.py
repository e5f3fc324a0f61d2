"""A turn taken step by step: prefix, suffix, decode, each its own piece of work of the engine thread.

The daemon holds one lease over all of them and bounds the pauses; here is only what the engine needs
between two steps. Any other work, and any end of the turn, closes what is open.
"""

from __future__ import annotations

from modeld.engine.contract import Aborted, Engine
from modeld.pipe.messages import Decode, Done, EndSteps, EnsurePrefix, PrefillSuffix, Step
from modeld.worker.turn import Run, Send, TurnPlan, TurnRunner
from modeld.worker.turn_gate import Activity
from shared.errors import EngineFailed
from shared.protocol.api import Usage


class StepRunner:
    """At most one turn is open in it."""

    def __init__(self, engine: Engine, runner: TurnRunner, activity: Activity, end: frozenset[int]) -> None:
        self._engine = engine
        self._runner = runner
        self._activity = activity
        self._end = end
        self._run: Run | None = None
        self._plan: TurnPlan | None = None

    def serve(self, job: Step, send: Send) -> Done:
        """One step. Raises as a turn does; EngineFailed when the step before it is missing."""
        if isinstance(job, EndSteps):
            self.close()
            return Done(turn=job.turn, finish_reason="stop", usage=Usage(), state_valid=self._engine.valid())
        try:
            done = self._serve(job, send)
        except BaseException:
            self.close()
            raise
        if isinstance(job, Decode) or done.finish_reason == "cancelled":
            self.close()
        return done

    def close(self) -> None:
        """The lane is idle again; what was evaluated stays warm."""
        if self._run is not None:
            self._run = self._plan = None
            self._engine.end_turn()

    def _serve(self, job: EnsurePrefix | PrefillSuffix | Decode, send: Send) -> Done:
        if isinstance(job, EnsurePrefix):
            return self._ensure(job, send)
        run, plan = self._run, self._plan
        if run is None or plan is None:
            raise EngineFailed(reason="a step without the one before it")
        run.take(job.turn, send)
        try:
            if isinstance(job, PrefillSuffix):
                run.prefill(plan.options)
                return run.done("stop")
            run.decode(plan, self._end)
        except Aborted:
            run.cancelled = True
            if isinstance(job, PrefillSuffix):
                self._engine.end_turn()  # only then is the state judged
                return run.done("cancelled")
        self._engine.end_turn()
        return run.finish(plan.parser, plan.window_bound)

    def _ensure(self, job: EnsurePrefix, send: Send) -> Done:
        self.close()
        plan = self._runner.plan(job)
        run = Run(self._engine, self._activity, job.turn, send)
        self._run, self._plan = run, plan  # from here on the engine has a turn to end
        run.ensure(plan.tokens, "turn", job.conversation, plan.images)
        return run.done("stop")
