/** What makes a short process of a test cheaper. */

/**
 * The flag with which the runner delays V8's optimization: `spawn` passes on no flags of its own process, and a short process
 * hardly runs what is optimized.
 */
export const lateOptimization: readonly string[] = process.execArgv.filter((flag) =>
  flag.startsWith("--interrupt-budget"),
);

/** Variables for programs of which neither the watchdog nor the threads are tested: both take time to start. */
export const plainDevice = { HOLDFAST_STALL_AFTER: "off", HOLDFAST_THREADS: "1" } as const;
