/** What makes a short process of a test cheaper. */

/**
 * V8's flags of this process, which come from the runner (scripts/testing/test-process.mjs). Pass them to child processes, which don't
 * inherit them: they make short processes cheaper, and V8 keeps compiled code for these flags.
 */
export const shortRunFlags: readonly string[] = process.execArgv.filter((flag) =>
  /^--(?:interrupt-budget|single-threaded-gc|min-semi-space-size)\b/.test(flag),
);

/** Variables for programs of which neither the watchdog nor the threads are tested: both take time to start. */
export const plainDevice = {
  HOLDFAST_STALL_AFTER: "off",
  HOLDFAST_THREADS: "1",
  HOLDFAST_BLAS: "off",
} as const;
