/**
 * A compile thread: claims programs, compiles them with NVRTC, posts the results, and exits when none is left.
 * `compile-queue.ts` has the rules.
 */

import { workerData } from "node:worker_threads";
import { HoldfastError } from "../../errors/index.js";
import { currentThreadId, loadNative, makeWorkerBeat } from "../../units/index.js";
import { loadKoffi } from "../foreign-functions.js";
import { nvrtcFunctions } from "./bindings.js";
import { bindCalls } from "./calls.js";
import {
  type CompileFailure,
  CompileQueue,
  type CompileResult,
  type CompileThreadStart,
} from "./compile-queue.js";
import { FailureLog } from "./cuda-error.js";
import { compileProgram, type Nvrtc } from "./nvrtc.js";

/** The data of a thread that compiles with NVRTC. */
export interface NvrtcThreadStart extends CompileThreadStart {
  /** The file that the main thread has loaded. */
  readonly nvrtcPath: string;
}

const { queue: shared, thread, programs, port, heartbeat, nvrtcPath } = workerData as NvrtcThreadStart;
const queue = new CompileQueue(shared.length, shared.threads, shared.memory);
const beat = makeWorkerBeat(heartbeat);

function openNvrtc(path: string): Nvrtc {
  const opened = { handle: loadKoffi().load(path), path };
  return bindCalls({ library: "nvrtc", functions: nvrtcFunctions, opened, failures: new FailureLog() });
}

function compileNext(nvrtc: Nvrtc): boolean {
  const index = queue.claim(thread);
  const program = index === undefined ? undefined : programs[index];
  if (index === undefined || !program) return false;
  try {
    const cubin = compileProgram(nvrtc, program);
    post({ index, cubin }, [cubin.buffer]);
  } catch (error) {
    post({ index, failure: failureOf(error) });
  }
  beat();
  queue.countFinished();
  return true;
}

function post(result: CompileResult, transferList: readonly ArrayBuffer[] = []): void {
  port.postMessage(result, transferList);
}

function failureOf(error: unknown): CompileFailure {
  const { code, numbers } = error instanceof HoldfastError ? error : { code: undefined, numbers: {} };
  return { code, numbers, message: error instanceof Error ? error.message : String(error) };
}

queue.setThreadId(thread, currentThreadId() ?? 0);
// The other threads may have compiled everything while this one started.
if (queue.hasFree) {
  const nvrtc = await loadNative(async () => openNvrtc(nvrtcPath));
  while (compileNext(nvrtc));
}
