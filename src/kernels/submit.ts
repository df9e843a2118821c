/** Submits kernel calls: an open trace records them; otherwise the backend lowers them and the runtime submits the commands. */

import type { IndexCheck, LoadedCommand, Runtime, Storage, TraceSink, UploadItem } from "../runtime/index.js";
import { backendOf, lowerCalls } from "./backend.js";
import type { KernelCall } from "./kernel-call.js";

/** A trace that keeps kernel calls as they are, before they are lowered for a device. */
export abstract class CallTrace implements TraceSink {
  abstract recordCall(call: KernelCall): void;
  abstract record(command: LoadedCommand): void;
  abstract upload(items: Iterable<UploadItem>): void;
  abstract addGuard(isValid: () => boolean): void;
  abstract writeOnlyIfFinite(value: Storage | undefined): void;
  abstract writeWhileFinite(value: Storage, body: () => void): void;
  abstract spareWrites(storage: Storage): void;
  abstract checkIndices(found: Storage, check: IndexCheck): void;
  abstract discard(storage: Storage): void;
  abstract reject(what: string, label: string, advice?: string): never;
}

/** Submits kernel calls. A trace that is not a `CallTrace` gets the lowered commands. */
export function submit(runtime: Runtime, calls: readonly KernelCall[]): void {
  const trace = runtime.traceSink;
  if (trace instanceof CallTrace) for (const call of calls) trace.recordCall(call);
  else runtime.submit(runtime.load(lowerCalls(backendOf(runtime), calls)));
}
