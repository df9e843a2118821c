/** Nobody wakes its waiters. */
const word = new Int32Array(new SharedArrayBuffer(4));

/** Blocks this thread, and takes no processor meanwhile; without a time, forever. */
export function sleepSync(ms = Number.POSITIVE_INFINITY): void {
  Atomics.wait(word, 0, 0, ms);
}
