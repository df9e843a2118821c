/** What makes a short process of a test cheaper. */

/**
 * The runner's flag that delays V8's optimization. Pass it to child processes, which don't inherit it: a short process hardly uses
 * optimized code.
 */
export const lateOptimization: readonly string[] = process.execArgv.filter((flag) =>
  flag.startsWith("--interrupt-budget"),
);

/** Variables for programs of which neither the watchdog nor the threads are tested: both take time to start. */
export const plainDevice = {
  HOLDFAST_STALL_AFTER: "off",
  HOLDFAST_THREADS: "1",
  HOLDFAST_BLAS: "off",
} as const;
