"""Private names of CPython's standard library, and of packages that scripts may import."""

from __future__ import annotations

from .names import Kind, Name, Purpose

PURPOSES = (
    Purpose(
        "new threads",
        "telling the hook library about threads that Python starts",
        "threads of the script that give the GPU no work are not recognised",
        ("emu/interpreter/thread_names.py",),
        (Name("threading", "Thread._bootstrap_inner", takes=("self",)),),
        wrong="how often such threads read the clock changes the rank's host time",
    ),
    Purpose(
        "tasks of threads",
        "telling how much GPU work there was when a task was handed to a thread pool",
        "a task that waits for the GPU while the script goes on may be waited for",
        ("emu/interpreter/thread_names.py",),
        (
            Name(
                "concurrent.futures.thread",
                "_WorkItem.__init__",
                takes=("self future fn args kwargs", "self future task"),
            ),
            Name("concurrent.futures.thread", "_WorkItem.run", takes=("self", "self ctx")),
        ),
        wrong="times of scripts with such tasks may differ from run to run",
    ),
    Purpose(
        "daemon threads",
        "telling the program's own threads from those that only watch",
        "daemon threads ask for the time, and what they ask depends on this machine",
        ("emu/private/access.py",),
        (Name("threading", "_active", Kind.OBJECT), Name("threading", "_DummyThread", Kind.CLASS)),
        wrong="the host time of scripts with such threads may differ from run to run",
    ),
    Purpose(
        "modules as scripts",
        "running modules as `python -m` does",
        "modules run as runpy.run_module runs them: classes of the module cannot be pickled once it has ended",
        ("emu/private/access.py",),
        (Name("runpy", "_run_module_as_main", takes=("mod_name alter_argv",)),),
    ),
    Purpose(
        "waiting for threads",
        "waiting for a script's threads at its end",
        "a rank does not wait for its threads when its script ends",
        ("emu/start/rank.py",),
        (Name("threading", "_shutdown", takes=("",)),),
        wrong="what threads would still do after the script's last line is missing",
    ),
    Purpose(
        "exit handlers",
        "running exit handlers at a script's end",
        "functions that scripts and libraries register with atexit do not run",
        ("emu/start/rank.py",),
        (Name("atexit", "_run_exitfuncs"),),
        wrong="what exit handlers would still write or send is missing",
    ),
    Purpose(
        "finalizers",
        "keeping shared operators and temporary folders at a rank's end",
        "ranks need more time and memory to end, and temporary folders of preloaded modules may vanish early",
        ("emu/start/prepare.py",),
        (Name("weakref", "finalize._registry", Kind.OBJECT), Name("weakref", "finalize.peek")),
    ),
    Purpose(
        "multiprocessing's folder",
        "keeping multiprocessing's temporary folders in the run's own",
        "temporary folders of multiprocessing (pymp-*) stay in $TMPDIR if their process is killed",
        ("emu/start/rank.py",),
        (Name("multiprocessing.process", "_current_process", Kind.OBJECT),),
    ),
    Purpose(
        "interpreters by their path",
        "starting programs that name the Python interpreter by its path",
        "processes that a script starts by sys.executable become no ranks",
        ("emu/start/interpreter_paths.py",),
        (Name("_posixsubprocess", "fork_exec"), Name("subprocess", "_fork_exec")),
    ),
    Purpose(
        "names of the environment",
        "noticing modules that read a rank's environment when they are imported",
        "modules that read RANK and the like when they are imported may be shared by ranks",
        ("emu/preload/trial.py",),
        (Name("os", "_Environ.__getitem__", takes=("self key",)),),
        wrong="such a module tells every rank the same; --no-auto-preload helps",
    ),
    Purpose(
        "JAX",
        "refusing JAX, which would compute on this machine's CPU",
        "scripts that use JAX are not refused and compute on this machine's CPU",
        ("emu/start/unused_gpu.py",),
        (Name("jax._src.xla_bridge", "backends"),),
    ),
    Purpose(
        "responses of transformers",
        "telling when transformers' generate has tokens, and giving its responses the lengths of --lengths",
        "responses of transformers' generate are not reported, and have other lengths than --lengths states",
        ("emu/control/generation/transformers_loop.py",),
        (
            Name(
                "transformers.generation.utils",
                "GenerationMixin._sample",
                takes=("self input_ids logits_processor stopping_criteria generation_config ...",),
            ),
            Name("transformers.generation.utils", "GenerationMixin._has_unfinished_sequences"),
            Name("transformers.generation.utils", "GenerationMixin._beam_search"),
            Name("transformers.generation.utils", "GenerationMixin._assisted_decoding"),
        ),
        wrong="generation takes as long as the longest responses that it allows",
    ),
    Purpose(
        "clock of vLLM's client",
        "saying that a client of vLLM in a process without a GPU has real time",
        "nothing says so",
        ("emu/control/generation/vllm_clocks.py",),
        (Name("vllm.v1.engine.core_client", "MPClient.__init__"),),
        wrong="times that vLLM's client shows mix real and simulated time",
    ),
    Purpose(
        "clock of vLLM's benchmark",
        "saying that `vllm bench serve` in a process without a GPU has real time",
        "nothing says so",
        ("emu/control/generation/vllm_clocks.py",),
        (Name("vllm.benchmarks.serve", "main_async"),),
        wrong="times that vLLM's benchmark shows mix real and simulated time",
    ),
    Purpose(
        "responses of vLLM",
        "telling when vLLM has tokens, and giving its responses the lengths of --lengths",
        "responses of vLLM are not reported, and have other lengths than --lengths states",
        ("emu/control/generation/vllm_scheduler.py",),
        (
            Name(
                "vllm.v1.core.sched.scheduler",
                "Scheduler._update_request_with_output",
                takes=("self request new_token_ids ...",),
            ),
            Name("vllm.v1.core.sched.scheduler", "Scheduler.add_request"),
            Name("vllm.v1.core.sched.scheduler", "Scheduler.finish_requests"),
            Name("vllm.v1.core.sched.scheduler", "Scheduler.schedule"),
            Name("vllm.v1.core.sched.scheduler", "Scheduler.update_from_output"),
            Name("vllm.v1.core.block_pool", "BlockPool.get_num_free_blocks"),
        ),
        wrong="generation takes as long as the longest responses that it allows",
    ),
    Purpose(
        "workers of vLLM",
        "telling of requests in the workers' virtual time where vLLM's scheduler is in a process without a GPU",
        "requests of vLLM are not reported there",
        ("emu/control/generation/vllm_workers.py",),
        (
            Name("vllm.v1.worker.gpu_worker", "Worker.execute_model", takes=("self scheduler_output ...",)),
            Name("vllm.v1.worker.gpu_worker", "Worker.sample_tokens"),
        ),
        wrong="the host of a GPU runs ahead of the tokens that vLLM's scheduler waits for",
    ),
    Purpose(
        "unfused attention",
        "telling that Transformer Engine computes attention unfused",
        "attention that Transformer Engine computes unfused is not told of",
        ("emu/start/unfused_attention.py",),
        (
            Name(
                "transformer_engine.pytorch.attention.dot_product_attention.backends",
                "UnfusedDotProductAttention.forward",
            ),
        ),
    ),
)
