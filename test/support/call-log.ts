/** A wrapper that records every driver call: tests count them, and check which calls a capture passed on. */

import type { Driver, DriverCall, Launch } from "holdfast/internals";
import { interceptCalls } from "../../src/driver/index.js";

export interface LoggedCall {
  readonly call: DriverCall;
  readonly args: readonly unknown[];
  /** True if the driver was recording then. The calls that begin and end it are outside. */
  readonly isInCapture: boolean;
  hasReturned: boolean;
}

export class CallLog {
  readonly calls: LoggedCall[] = [];
  #isCapturing = false;

  get isCapturing(): boolean {
    return this.#isCapturing;
  }

  /** A bound function, so that it can be passed on: `withRuntime(…, log.wrap)`. */
  readonly wrap = (inner: Driver): Driver =>
    interceptCalls(inner, (call, args, proceed) => {
      // Whatever the driver returns, its capture is over.
      if (call === "endCapture") this.#isCapturing = false;
      const logged: LoggedCall = { call, args, isInCapture: this.#isCapturing, hasReturned: false };
      this.calls.push(logged);
      const result = proceed();
      logged.hasReturned = true;
      if (call === "beginCapture") this.#isCapturing = true;
      return result;
    });

  /** The number of calls that were made and returned. */
  count(call: DriverCall): number {
    return this.calls.filter((entry) => entry.call === call && entry.hasReturned).length;
  }

  /**
   * The number of kernels that were launched and returned, except those that deliver gradients: the CPU uses
   * copies for that.
   */
  countKernels(): number {
    const names = this.calls.flatMap(({ call, args, hasReturned }) =>
      call === "launch" && hasReturned ? [(args[1] as Launch).kernel.name] : [],
    );
    return names.filter((name) => !/^copy of \d+$/.test(name)).length;
  }

  /** The calls after the first `count`, including rejected ones. */
  namesFrom(count: number): DriverCall[] {
    return this.calls.slice(count).map(({ call }) => call);
  }

  namesInCapture(): DriverCall[] {
    return this.calls.filter(({ isInCapture }) => isInCapture).map(({ call }) => call);
  }
}
