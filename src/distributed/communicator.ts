/**
 * Communicators: how ranks exchange bytes of device memory. A collective is a kernel, so it is launched on a stream, recorded in
 * graphs, planned and verified like any other. Every rank must launch the same collectives in the same order.
 */

import type { KernelSource } from "../driver/index.js";

/** A collective, with the sizes of its kernel's operands. All sizes are in bytes, and the same on every rank. */
export interface Communicator {
  /** The library with its version. */
  readonly name: string;
  readonly rank: number;
  readonly size: number;

  /** (in [bytes], out [size · bytes]): the bytes of every rank, in the order of ranks. */
  allGather(bytes: number): KernelSource;
  /** (in [size · bytes], out [size · bytes]): part i goes to rank i, and part i of the result is from rank i. */
  allToAll(bytes: number): KernelSource;
  /**
   * (in [size · bytes], out [bytes]): float32 sums over all ranks of their parts number `rank`. The library chooses the order of additions, so
   * other sizes or numbers of ranks may round differently.
   */
  reduceScatter(bytes: number): KernelSource;
  /** (inout [bytes]): the bytes of the rank `root` replace those of the others. */
  broadcast(bytes: number, root: number): KernelSource;
  /** Ends the connections. All ranks call it, unless one was lost. */
  close(): void;
}

/** What a communicator tells while it waits for other ranks. */
export interface WaitObserver {
  begin(collective: string, bytes: number): void;
  /** Throws if a rank is lost. Called often while the collective has not completed. */
  poll(): void;
  end(): void;
}

/** Waits without an opinion on the other ranks. */
export const patientObserver: WaitObserver = {
  begin: () => undefined,
  poll: () => undefined,
  end: () => undefined,
};
