/**
 * The flag with which the runner delays V8's optimization, for processes that a test starts: `spawn` passes on no flags of its
 * own process, and a short process hardly runs what is optimized.
 */
export const lateOptimization: readonly string[] = process.execArgv.filter((flag) =>
  flag.startsWith("--interrupt-budget"),
);
