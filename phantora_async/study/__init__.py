"""Many configurations of a job, tried one after the other: `phantora-async sweep`.

Lives here: what is run and what is replayed (`execution`), on this machine (`machines`) or on a Ray cluster (`on_ray`);
trials that a sampler chooses (`search`, `sampler`); all of it in one call (`sweeping`). What to try with one recorded
run (`advice`), with other `arguments` of its script or with `patches` of PyTorch's defaults. Trials are in `trials`,
what came of them in `outcome`.
Comes in: a study; a table of prices.
Goes out: a result for each trial, the Pareto front, the best ones as commands.
May import: study.trials, study.outcome; emu.contract, profiles; api, config, errors, figures, options, recording,
replaying, spending, wording.
"""
