/*
 * A GPU lowers its clock until what its kernels draw is its power limit. Kernels draw so much that this decides how
 * long a step's matrix products take (1.17 times as long as at the full clock, if nothing else runs), and it depends on
 * the kernels before: an H200 left alone runs products at its full clock for some 40 ms.
 *
 * Sums over the last kernels, older ones counting less, hold what these would take at the full clock: their time, their
 * energy (power in units of the limit, times time), and both weighted by how much the clock stretches them. A stretch s
 * of products costs time and saves energy:
 *
 *     time(s)   = time + clocked (s - 1)
 *     energy(s) = energy - clocked_energy (1 - 1 / s)
 *
 * and the clock is where energy(s) = time(s). All work of a GPU counts, one kernel after the other. Waits for other
 * ranks are not known here: the GPU counts as busy through them.
 */
#include "costs/power.h"
#include "core/config.h"
#include "core/lock.h"

#include <math.h>

#define CONSTANT(NAME, value) static const double NAME = value;
#include "../../contract/definitions/power_clock.def"
#undef CONSTANT

#define THOUSANDTHS 0.001

static struct {
    double clocked, energy, clocked_energy; /* over the window */
    double stretch;                         /* 0: nothing has run */
    uint64_t free_ns;                       /* when the last kernel ends, if the GPU never waits for others */
    uint32_t last_stream;                   /* where it was launched */
    uint64_t unsolved_ns;
} gpus[PH_MAX_DEVICES];

static void add(int device, double ns, double power, double clocked) {
    /* The window's time stays the same: what is added pushes as much out. */
    double window = ph_cfg.power_window_ns, left = window / (window + ns);
    gpus[device].clocked = (gpus[device].clocked + ns * clocked) * left;
    gpus[device].energy = (gpus[device].energy + ns * power) * left;
    gpus[device].clocked_energy = (gpus[device].clocked_energy + ns * power * clocked) * left;
}

static double solved(int device) {
    double time = ph_cfg.power_window_ns, clocked = gpus[device].clocked, energy = gpus[device].energy,
           saved = gpus[device].clocked_energy;
    if (energy <= time || clocked <= 0) return 1;
    double half = (time - clocked - energy + saved) / 2;
    double stretch = (sqrt(half * half + clocked * saved) - half) / clocked;
    return stretch < 1 ? 1 : stretch > LONGEST_STRETCH ? LONGEST_STRETCH : stretch;
}

double ph_power_launch(int device, uint32_t stream, const ph_cost *cost, uint64_t now_ns, uint64_t gap_ns) {
    ph_lock_needed(PH_LOCK_RECORDS);
    if (ph_cfg.power_window_ns == 0 || device < 0 || device >= PH_MAX_DEVICES) return 1;
    double idle = ph_cfg.power_idle * THOUSANDTHS;
    if (UNLIKELY(gpus[device].stretch == 0)) {
        gpus[device].stretch = 1;
        gpus[device].energy = idle * ph_cfg.power_window_ns;
        gpus[device].free_ns = now_ns;
    }
    if (now_ns > gpus[device].free_ns) {
        gap_ns += now_ns - gpus[device].free_ns;
        gpus[device].free_ns = now_ns;
    }
    double clocked = cost->clocked * THOUSANDTHS;
    add(device, (double)gap_ns, idle, 0);
    add(device, (double)cost->solo_ns, cost->power * THOUSANDTHS, clocked);
    gpus[device].unsolved_ns += gap_ns + cost->solo_ns;
    if ((double)gpus[device].unsolved_ns >= SOLVE_NS) {
        gpus[device].stretch = solved(device);
        gpus[device].unsolved_ns = 0;
    }
    double longer = 1 + clocked * (gpus[device].stretch - 1);
    gpus[device].free_ns += (uint64_t)((double)cost->solo_ns * longer);
    gpus[device].last_stream = stream;
    return longer;
}

void ph_power_host_waited(int device, uint32_t stream, uint64_t now_ns) {
    if (device < 0 || device >= PH_MAX_DEVICES || (stream && stream != gpus[device].last_stream)) return;
    if (gpus[device].free_ns > now_ns) gpus[device].free_ns = now_ns;
}
