"""Takes the CUDA kernels of some training steps with PyTorch's own profiler.

`ncclscope ctl --kernels N` and `NCCLSCOPE_KERNELS_AT` ask for it. The attached file runs this one
at the first request; until then nothing of it is in the job. It needs nothing but the standard
library: Python 3.8 and later, PyTorch 2.1 and later.

The profiler starts and stops where a training step ends: at `ncclscope.torch.step`, else at the end
of an optimizer's step that follows a backward pass. Both are in the thread of the training loop, as
PyTorch wants it. The trace goes into the process's folder of the capture, and a line of
context.jsonl says so, or why there is none. Nothing here may raise into the job.
"""

import functools
import os
import sys
import time
import warnings

MOST_STEPS = 100
MOST_BYTES = 256 << 20  # of a trace: about 500,000 kernels
LONGEST_S = 60.0  # after which a step that does not end is cut off
_OPTIMIZER = "Optimizer.step#"
# Tools that use the driver's one place for a profiler set these.
_OTHER_TOOLS = ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
_STARTS = ("_prepare_profiler", "_enable_profiler")  # what every profiler of PyTorch calls


class KernelTaker:
    """Waits for the end of a step, has the profiler run for some steps, and writes its trace."""

    def __init__(self, recorder, torch, write):
        self._recorder, self._torch, self._write = recorder, torch, write
        self._files = 0
        self._steps = 0  # still wanted; 0: there is no request
        self._runs = 0  # backward passes when the last step ended

    def ask(self, steps, after_ns=0, at_step=0):
        """Takes a request for `steps` steps, from the first that begins after a time, or from
        a numbered one on.
        """
        if self._steps:
            self._fail("an earlier request is under way")
            return
        why = self._why_not()
        if why:
            self._fail(why)
            return
        self._steps = self._wanted = max(1, min(int(steps), MOST_STEPS))
        self._after_ns, self._at_step = after_ns, at_step
        self._profile, self._ends_ns, self._counted = None, [], 0
        self._watch_steps()
        if self._at_step == 0 and not after_ns:
            self._quietly(self._start, time.time_ns())

    def _why_not(self):
        """Why the profiler cannot run; "": it can."""
        profiler = self._torch.autograd.profiler
        if "_ncclscope_pop" not in profiler.__dict__:
            return "the ends of training steps are not known: record_function is not attached"
        for name in _OTHER_TOOLS:
            if os.environ.get(name):
                return "another tool profiles CUDA: %s is set" % name
        return ""

    # ---- ends of steps ----
    def _watch_steps(self):
        """Puts a function around the end of record_function's ranges: only while it is needed,
        because it costs a Python frame each time.
        """
        watched = self._torch.autograd.profiler.record_function
        self._exit = leave = watched.__exit__

        @functools.wraps(leave)
        def leave_and_look(record, exc_type, exc_value, traceback):
            now_ns = time.time_ns()  # its first statement ends the range
            try:
                return leave(record, exc_type, exc_value, traceback)
            finally:
                self._look(record.name.startswith(_OPTIMIZER), now_ns)

        watched.__exit__ = leave_and_look
        self._recorder.on_step = self._marked_step
        self._runs = self._backward_runs()

    def _stop_watching(self):
        self._torch.autograd.profiler.record_function.__exit__ = self._exit
        self._recorder.on_step = None
        self._steps = 0

    def _look(self, is_optimizer, ended_ns):
        """A range has ended. It may have begun while an earlier request was watched."""
        if not self._steps:
            return
        if is_optimizer:
            runs = self._backward_runs()
            marks = getattr(sys.modules.get("ncclscope.torch"), "_steps", 0)
            if runs != self._runs and not marks:
                self._runs = runs
                self._counted += 1
                self._quietly(self._step, self._counted, ended_ns)
        elif self._profile is not None and time.monotonic() > self._deadline:
            self._quietly(self._stop)

    def _marked_step(self, number):
        self._quietly(self._step, number + 1, time.time_ns())

    def _backward_runs(self):
        engine = self._torch.autograd.Variable._execution_engine
        return getattr(engine, "_runs", 0)

    def _step(self, next_step, ended_ns):
        """A step has ended; `next_step` is the number of the one that begins."""
        if self._capturing():
            return
        if self._profile is None:
            if ended_ns >= self._after_ns and next_step >= self._at_step:
                self._start(ended_ns)
            return
        self._ends_ns.append(ended_ns)
        self._steps -= 1
        if not self._steps or time.monotonic() > self._deadline:
            self._stop()

    def _capturing(self):
        """Whether a CUDA graph is being captured: the profiler would break that."""
        cuda = self._torch.cuda
        return cuda.is_available() and cuda.is_initialized() and cuda.is_current_stream_capturing()

    # ---- the profiler ----
    def _start(self, now_ns):
        profiler = self._torch.profiler
        if self._torch._C._autograd._profiler_enabled():
            raise RuntimeError("the job's own profiler runs")
        activities = set(profiler.supported_activities())
        if profiler.ProfilerActivity.CUDA in activities:
            activities = {profiler.ProfilerActivity.CUDA}
        self._ends_ns.append(now_ns)
        self._deadline = time.monotonic() + LONGEST_S
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profile = profiler.profile(activities=activities)
            profile.start()
        self._profile = profile
        self._give_way()

    def _give_way(self):
        """Has a profiler that the job starts meanwhile end ours first: there can be one only."""
        names = self._torch.autograd.profiler.__dict__
        self._given = {name: names[name] for name in _STARTS if name in names}
        for name, function in self._given.items():
            names[name] = self._ending_ours(function)

    def _ending_ours(self, function):
        def start(*args, **kwargs):
            if self._profile is not None:
                self._quietly(self._stop, "the job started a profiler of its own")
            return function(*args, **kwargs)

        return start

    def _stop(self, why=""):
        profile, self._profile = self._profile, None
        self._torch.autograd.profiler.__dict__.update(self._given)
        self._stop_watching()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profile.stop()
            if why:
                self._fail(why)
            else:
                self._export(profile)

    def _export(self, profile):
        name = "kernels.%d.json" % self._files
        self._files += 1
        path = os.path.join(self._recorder.folder, name)
        new = os.path.join(self._recorder.folder, "new." + name)
        try:
            profile.export_chrome_trace(new)
            size = os.path.getsize(new)
            if size > MOST_BYTES:
                self._fail("the trace has %d MB; ask for fewer steps" % (size >> 20))
                return
            os.chmod(new, 0o600)
            os.rename(new, path)
        finally:
            if os.path.exists(new):
                os.unlink(new)
        self._write(
            self._recorder,
            what="kernels",
            file=name,
            steps=len(self._ends_ns) - 1,
            wanted=self._wanted,
            ends_ns=self._ends_ns,
        )

    # ---- failures ----
    def _quietly(self, part, *arguments):
        """Calls a part. The job goes on if it fails, and the capture says so."""
        try:
            part(*arguments)
        except Exception as error:
            self._fail("%s: %s" % (type(error).__name__, error))
            if self._steps:
                self._stop_watching()

    def _fail(self, why):
        self._write(self._recorder, what="kernels", file="", why=str(why)[:200])
