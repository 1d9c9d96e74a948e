"""Makes a ``Config`` of the options, or says which of them is wrong."""

from __future__ import annotations

import os
from pathlib import Path

from phantora_async import kernel_times, trace_request
from phantora_async.budget import OPTIONS as BUDGETS
from phantora_async.budget import Limits
from phantora_async.config import launchers
from phantora_async.config.config import Config
from phantora_async.config.display import shown_ranks_of, ui_of
from phantora_async.config.folding import each_if_they_differ, folding_of, share_timelines
from phantora_async.config.known import why_not_known
from phantora_async.config.limits import check_waits, steps_of, until_ns_of
from phantora_async.config.outputs import (
    RECORDED,
    check_recordable,
    compile_cache_of,
    link_logs,
    record_of,
    report_of,
    run_dir_of,
    writable_of,
)
from phantora_async.config.program import checked_module, checked_script, find_python
from phantora_async.config.servers import isolation_of, listen_of, nccl_settings, servers_of
from phantora_async.config.values import lengths_of, loading_of, routing_of, shapes_of, stated_value_of
from phantora_async.errors import UsageError
from phantora_async.faults import check_deaths, given_faults
from phantora_async.options import PathText, RunOptions
from profiles import EmulatedMachine, HostModel, ProfileError, load_host, load_machine


def resolve(options: RunOptions) -> Config:
    """The run that these options describe; its run directory has been created. Raises UsageError."""
    given = options.checked()
    if not given.script:
        raise UsageError(
            "no script given", "phantora-async run -n 8 train.py, or for a module: phantora-async run -n 8 -m MODULE"
        )
    # Options are checked in an order in which each check has what it needs: the machine first, then its servers, then
    # what depends on their number. The run directory is claimed late, so that few wrong options leave one behind.
    machine, host = _descriptions(given)
    cluster, gpu = machine.cluster, machine.gpu
    check_waits(given.stall_timeout, given.loop_turns)
    servers = servers_of(given, cluster)
    # The slowest of the job's GPUs and hosts decides how long a step takes, so the descriptions stand for that one.
    gpu = gpu.one_of(sum(servers))
    if given.host == "modelled":
        host = host.one_of(sum(servers))
    level = isolation_of(given, len(servers))
    nccl, remarks = nccl_settings(cluster, len(servers))
    faults = given_faults(given.fault, _path(given.faults), servers, cluster)
    folding, folding_remarks = folding_of(given, servers, faults)
    shared = share_timelines(given, folding, faults)
    check_deaths(faults, servers, folding, given.launcher)
    if given.launcher and given.module:
        raise UsageError("--launcher and -m exclude each other", "--launcher -- python -m MODULE")
    script = os.fspath(given.script)
    if not given.launcher:
        launchers.check(given)
        script = checked_module(script) if given.module else checked_script(script)
    shown = shown_ranks_of(given.show_ranks, sum(servers))
    # A rank without a process has no output to show.
    if folding is not None:
        shown &= frozenset(folding.live)
    trace = trace_request.resolve(_text(given.trace), given.trace_ranks, given.trace_steps, sum(servers))
    values = tuple(stated_value_of(text, "" if given.module or given.launcher else script) for text in given.value)
    python = find_python(_text(given.python))
    if given.launcher:
        launchers.check_environment([script, *given.arguments], python)
    budget = _budget_of(given)
    # A recording is for other machines and other limits as well: it is not cut short.
    limits = {} if given.record is not None else budget.by_figure
    (steps, all_steps), until_ns = steps_of(given.steps, given.real_steps), until_ns_of(given.until)
    cache, cache_remarks = compile_cache_of(_text(given.compile_cache))
    ui = ui_of(given.ui)
    if given.known and (unknowable := why_not_known(given)):
        cache_remarks += (f"the result is not kept: {unknowable}",)
    # Steps that are played come from a recording: without --record, one is kept in the run directory.
    if all_steps:
        check_recordable(given, "--real-steps")
        if given.lengths is not None:
            raise UsageError(
                "--real-steps and --lengths exclude each other: a step that is played has no responses of its own",
                "--steps alone does all steps",
            )
    record = record_of(given)
    claimed = run_dir_of(_text(given.run_dir), script, sum(servers))
    if all_steps and record is None:
        record = claimed.path / RECORDED
        record.mkdir(mode=0o700, exist_ok=True)
    if given.launcher:
        link_logs(claimed.path, servers)
    return Config(
        options=given,
        script=script,
        module=given.module,
        arguments=tuple(given.arguments),
        launcher=given.launcher,
        restart_delay_ns=launchers.restart_delay_ns(given.arguments),
        servers=servers,
        gpu=gpu,
        cluster=cluster,
        assumed_links=machine.assumed_links,
        host=host,
        host_mode=given.host,
        loaders=loading_of(given.loaders).text,
        kernel_times=kernel_times.find(given.kernel_times, gpu),
        faults=faults,
        steps=steps,
        all_steps=all_steps,
        until_ns=until_ns,
        most_allocated_nbytes=int(limits.get("allocated", 0)),
        most_reserved_nbytes=int(limits.get("memory", 0)),
        most_step_ns=round(1e9 * limits.get("step", 0)),
        nccl=nccl,
        remarks=remarks + folding_remarks + cache_remarks,
        speculation=given.speculation,
        share_weights=given.shared_weights,
        isolation=level,
        routing=routing_of(given.moe).text,
        data_shapes=shapes_of(given.data_shapes).text,
        lengths="" if given.lengths is None else lengths_of(given.lengths).text,
        values=values,
        network=given.network or ("host" if level == "none" else "private"),
        writable=writable_of(given.write),
        python=python,
        preload=tuple(given.preload),
        auto_preload=given.auto_preload,
        warm=given.warm,
        known=given.known and not why_not_known(given),
        compile_cache=cache,
        claimed=claimed,
        report=report_of(_text(given.report), claimed.path),
        shown_ranks=shown,
        stall_timeout_s=given.stall_timeout,
        listen=listen_of(given, len(servers), claimed.path),
        loop_turns=given.loop_turns,
        trace=trace,
        ui=ui,
        reasons=given.reasons,
        record=record,
        budget=budget,
        folding=folding,
        share_timelines=shared,
        each_if_they_differ=each_if_they_differ(given, folding, shared),
    )


def _budget_of(given: RunOptions) -> Limits:
    """The limits of the run. Raises UsageError naming the option."""
    try:
        return Limits.of({name: getattr(given, name) for name in BUDGETS})
    except UsageError as error:
        name, _, fault = error.message.partition(":")
        raise UsageError(f"--{name.replace('_', '-')}:{fault}") from None


def _descriptions(given: RunOptions) -> tuple[EmulatedMachine, HostModel]:
    try:
        machine = load_machine(given.cluster, given.gpu)
        return machine, load_host(machine.cluster.host)
    except ProfileError as error:
        raise UsageError(
            str(error),
            "all names: phantora-async profiles list; to make your own: phantora-async profiles copy NAME",
        ) from None


def _path(path: PathText | None) -> Path | None:
    return None if path is None else Path(path)


def _text(path: PathText | None) -> str | None:
    return None if path is None else os.fspath(path)
