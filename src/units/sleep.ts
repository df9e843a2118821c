/** Blocks this thread, and takes no processor meanwhile; without a time, forever. */
export function sleepSync(ms = Number.POSITIVE_INFINITY): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
