"""How results are verified and timed: every number that a measurement depends on, and the label that names them all.

The label goes into `CacheKey.method`. It is made from the numbers, so that a changed number makes a new label and no
stored time is ever compared with one that was made in another way.
"""

__all__ = [
    "CLEARLY",
    "DIRECT_SLACK_US",
    "FIRST_RUN_SLACK_US",
    "GRAPH_BELOW_US",
    "LEAD_BELOW_US",
    "LEAST_ROUNDS",
    "MAX_DOUBLINGS",
    "MAX_ROUNDS",
    "MAX_SETS",
    "METHOD_LABEL",
    "MIN_ROUNDS",
    "NOISE_LIMIT",
    "NOISE_RETRIES",
    "REFINE_SAMPLE_US",
    "ROTATION_FACTOR",
    "SCREEN_BUDGET_US",
    "SCREEN_SAMPLE_US",
    "TIE",
    "WARM_UP_US",
]

# Of what no number below says: order of the passes, stopping rules, formulas of verify.py, kernels of reference.cu.
REVISION = 3

# Operands rotate over sets that together exceed the L2 cache this many times, so that every run reads cold data.
ROTATION_FACTOR = 3
MAX_SETS = 512  # more sets would make a graph that takes longer to capture than to run

# A run shorter than this is timed inside a CUDA graph; above it, launches queue up faster than the GPU runs them.
GRAPH_BELOW_US = 200.0

# One sample spans at least so long, so that the 1 µs resolution and the 2 µs gap between graphs do not show.
SCREEN_SAMPLE_US = 300.0
REFINE_SAMPLE_US = 1000.0
SCREEN_BUDGET_US = 3000.0  # of timed runs in one screening
MAX_DOUBLINGS = 16  # of a batch whose sample is still too short, zero or negative

# What the host may add to a timed run: the very first one of a kernel loads it, and a single launch of a short kernel
# is waited for (30 to 75 us on an H200 with CuPy). No candidate is stopped for less than this.
FIRST_RUN_SLACK_US = 1000.0
DIRECT_SLACK_US = 100.0

# Samples queue up behind a run that is not timed, so that the GPU never waits for the host; of longer runs the wait is
# too small a part to matter.
LEAD_BELOW_US = 10_000.0

# Refinement: rounds in which every candidate still in the running is timed once. The first ones are not counted: a GPU
# that has paused runs at a higher clock than its power allows for long (an H200 by 15%), and settles in about this.
WARM_UP_US = 300_000.0
MIN_ROUNDS = 5
LEAST_ROUNDS = 3  # when the time is up before MIN_ROUNDS, or for one that was slower by more than this in each:
CLEARLY = 0.03
MAX_ROUNDS = 400
TIE = 0.005  # medians closer than this are one and the same
NOISE_LIMIT = 0.03  # interquartile range / median
NOISE_RETRIES = 2

METHOD_LABEL = (
    f"kt/{REVISION} random data, {ROTATION_FACTOR}xL2 rotation of at most {MAX_SETS} sets, "
    f"graphs below {GRAPH_BELOW_US:g} us, samples {SCREEN_SAMPLE_US:g}/{REFINE_SAMPLE_US:g} us, "
    f"{WARM_UP_US / 1e6:g} s warm-up, {MIN_ROUNDS}-{MAX_ROUNDS} paired rounds, "
    f"out after {LEAST_ROUNDS} by {CLEARLY:g}, tie {TIE:g}, "
    f"noise {NOISE_LIMIT:g}x{NOISE_RETRIES}; exact+random check"
)
