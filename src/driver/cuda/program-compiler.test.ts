/** Compilation on several threads: what each thread compiles, failures, and threads that end. */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { withoutThreads } from "../../../test/support/rejected-threads.js";
import { generousTimeoutMs } from "../../../test/support/timeouts.js";
import { beatCounter, listenToBeats, sleepSync, type WorkStage } from "../../units/index.js";
import { nvrtcFunctions } from "./bindings.js";
import { bindCalls } from "./calls.js";
import type { Cubin } from "./compile-batch.js";
import { FailureLog } from "./cuda-error.js";
import { openLibrary } from "./libraries.js";
import { compileProgram, type NvrtcProgram } from "./nvrtc.js";
import { ProgramCompiler, type ProgramCompilerOptions } from "./program-compiler.js";

/** Blocks this thread until something that another thread does. */
function waitUntil(isTrue: () => boolean): void {
  const deadlineMs = performance.now() + generousTimeoutMs;
  while (!isTrue()) {
    assert.ok(performance.now() < deadlineMs, "nothing happened");
    sleepSync(2);
  }
}

/** The shorter the name, the longer the code: the programs are claimed in the order of their names' lengths. */
const programOf = (name: string): NvrtcProgram => ({
  name,
  code: "x".repeat(10 - name.length),
  options: ["--gpu-architecture=sm_90"],
});

interface Scene {
  /** The code of the thread, with `claim(index)`, `post(index, byte)`, `meet()` and `thread`. */
  readonly thread: string;
  readonly programs: readonly string[];
  readonly threads?: number;
  /** The programs of which the main thread waits for `meet()` first. */
  readonly meetsAt?: readonly string[];
  readonly failing?: readonly string[];
}

/** Runs a made-up thread against the main thread; returns the order in which programs were compiled. */
function play({ thread, programs, threads = 2, meetsAt = [], failing = [] }: Scene) {
  const met = new Int32Array(new SharedArrayBuffer(4));
  const code = `
    import { readlinkSync } from "node:fs";
    import { workerData } from "node:worker_threads";
    const { queue, thread, port, met } = workerData;
    const words = new Int32Array(queue.memory);
    const claim = (index) => Atomics.compareExchange(words, 2 + index, 0, thread) === 0;
    const post = (index, byte) => {
      port.postMessage({ index, cubin: Uint8Array.of(byte) });
      Atomics.add(words, 0, 1);
      Atomics.notify(words, 0);
    };
    const fail = (index, message) => {
      port.postMessage({ index, failure: { code: "KERNEL_FAILED", message, numbers: { kernel: message } } });
      Atomics.add(words, 0, 1);
      Atomics.notify(words, 0);
    };
    const meet = () => Atomics.add(met, 0, 1);
    words[2 + queue.length + thread - 1] = Number(/\\d+$/.exec(readlinkSync("/proc/thread-self"))[0]);
    ${thread}`;
  const onMain: string[] = [];
  const compile = ({ name }: NvrtcProgram): Cubin => {
    if (meetsAt.includes(name)) waitUntil(() => Atomics.load(met, 0) > 0);
    onMain.push(name);
    if (failing.includes(name)) throw new Error(`main failed at ${name}`);
    return Uint8Array.of(name.length);
  };
  const compiled = new Map<string, number>();
  const compiler = new ProgramCompiler({
    compile,
    threads,
    threadScript: () => ({
      script: new URL(`data:text/javascript,${encodeURIComponent(code)}`),
      data: { met },
    }),
    minSharedMs: 0,
  });
  const run = (): void =>
    compiler.compileAll(
      programs.map(programOf),
      ({ name }, cubin) => void compiled.set(name, cubin[0] ?? -1),
    );
  return { run, onMain, compiled };
}

// The shortest program, "eeeee", is compiled first, to time it. The order of the claims is: eeeee, a, bb, ccc, dddd.
const names = ["a", "bb", "ccc", "dddd", "eeeee"];

describe("programs", () => {
  test("are each compiled once, whatever the order in which threads complete them", () => {
    const { run, onMain, compiled } = play({
      programs: names,
      meetsAt: ["a"],
      thread: "claim(2); claim(3); post(3, 33); post(2, 22); meet();",
    });
    run();
    assert.deepEqual(onMain, ["eeeee", "a", "dddd"]);
    assert.deepEqual(
      [...compiled].sort(),
      Object.entries({ a: 1, bb: 22, ccc: 33, dddd: 4, eeeee: 5 }).sort(),
    );
  });

  test("that threads complete after the main thread has nothing left are waited for", () => {
    const { run, onMain, compiled } = play({
      programs: names,
      meetsAt: ["a"],
      thread: `claim(2); claim(3); claim(4); meet();
        for (const index of [4, 3, 2]) { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5); post(index, index); }`,
    });
    run();
    assert.deepEqual(onMain, ["eeeee", "a"]);
    assert.deepEqual([compiled.get("bb"), compiled.get("ccc"), compiled.get("dddd")], [2, 3, 4]);
  });

  test("are reported as they are compiled", () => {
    const stages: (WorkStage | undefined)[] = [];
    const before = beatCounter()();
    listenToBeats((stage) => void stages.push(stage));
    const { run } = play({ programs: names, threads: 1, thread: "" });
    run();
    listenToBeats(undefined);
    assert.deepEqual(
      stages,
      names.map((_, index) => ({ name: "kernels", done: index + 1, of: 5 })),
    );
    assert.equal(beatCounter()() - before, 5);
  });

  test("need no thread if there is one, or if they are compiled quickly", () => {
    const noThread = (): never => assert.fail("a thread was started");
    const options: ProgramCompilerOptions = {
      compile: () => Uint8Array.of(1),
      threads: 8,
      threadScript: noThread,
    };
    const run = (compiler: ProgramCompiler, count: number): void =>
      compiler.compileAll(names.slice(0, count).map(programOf), () => undefined);
    run(new ProgramCompiler(options), 0);
    run(new ProgramCompiler(options), 5);
    run(new ProgramCompiler({ ...options, threads: 1, minSharedMs: 0 }), 5);
    run(new ProgramCompiler({ ...options, minSharedMs: 0 }), 1);
    assert.throws(() => run(new ProgramCompiler({ ...options, minSharedMs: 0 }), 3), /a thread was started/);
  });
});

describe("a failure", () => {
  test("is thrown with its code and text, and nothing is claimed after it", () => {
    const { run, onMain } = play({
      programs: names,
      meetsAt: ["a"],
      thread: 'claim(2); fail(2, "bb is wrong"); meet();',
    });
    assert.throws(run, { code: "KERNEL_FAILED", message: "bb is wrong", numbers: { kernel: "bb is wrong" } });
    assert.deepEqual(onMain, ["eeeee", "a"]);
  });

  test("is that of the first program in order, also if a later one fails earlier", () => {
    const first = play({
      programs: names,
      meetsAt: ["a"],
      failing: ["a"],
      thread: 'claim(2); fail(2, "bb is wrong"); meet();',
    });
    assert.throws(first.run, { message: "main failed at a" });
    const second = play({
      programs: names,
      failing: ["ccc"],
      meetsAt: ["a"],
      thread: `claim(2); meet(); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20); fail(2, "bb is wrong");`,
    });
    assert.throws(second.run, { message: "bb is wrong" });
    assert.deepEqual([...second.compiled.keys()], ["eeeee", "a"]);
  });
});

describe("a thread", () => {
  test("that ends with a claimed program loses it to the main thread, with a warning", async (t) => {
    const warned = new Promise<unknown[]>((resolve) => {
      t.mock.method(process, "emitWarning", (...args: unknown[]) => resolve(args));
    });
    const { run, onMain, compiled } = play({
      programs: names,
      meetsAt: ["a"],
      thread: 'claim(2); meet(); throw new Error("lost");',
    });
    run();
    assert.deepEqual(onMain, ["eeeee", "a", "ccc", "dddd", "bb"]);
    assert.equal(compiled.size, 5);
    const [message, options] = await warned;
    assert.match(String(message), /has compiled its kernels\. Error: lost/);
    assert.deepEqual(options, { code: "HOLDFAST_WORKER_ENDED" });
  });

  test("that the system rejects is replaced by the main thread", async () => {
    const { run, onMain } = play({ programs: names, threads: 4, thread: "" });
    const { warnings } = await withoutThreads(run);
    assert.deepEqual([onMain.length, warnings], [5, []]);
  });
});

describe("with NVRTC", { skip: emulatorMissing }, () => {
  const emulator = emulatorMissing ? undefined! : openEmulator();
  afterEach(() => emulator.reset());

  const kernelOf = (name: string, body: string): NvrtcProgram => ({
    name,
    code: `extern "C" __global__ void __launch_bounds__(32) hf_${name}(float* out) { ${body} }\n`,
    options: ["--gpu-architecture=sm_90", "--std=c++17"],
  });

  /** The main thread compiles its second program only when the other thread has compiled the rest. */
  function compileOnTwoThreads(programs: readonly NvrtcProgram[]): Map<string, Cubin> {
    const opened = openLibrary("nvrtc", { environment: { HOLDFAST_CUDA_PATH: emulator.folder } });
    const nvrtc = bindCalls({
      ...{ library: "nvrtc", functions: nvrtcFunctions, opened, failures: new FailureLog() },
    });
    const compiled = new Map<string, Cubin>();
    let onMain = 0;
    const end = emulator.calls("nvrtcDestroyProgram") + programs.length - 1;
    const compiler = new ProgramCompiler({
      compile(program) {
        if (onMain++ === 1) waitUntil(() => emulator.calls("nvrtcDestroyProgram") === end);
        return compileProgram(nvrtc, program);
      },
      threads: 2,
      threadScript: () => ({
        script: new URL("./compile-thread.js", import.meta.url),
        data: { nvrtcPath: opened.path },
      }),
      minSharedMs: 0,
    });
    compiler.compileAll(programs, ({ name }, cubin) => void compiled.set(name, cubin));
    assert.equal(onMain, 2);
    return compiled;
  }

  test("threads compile the machine code that the main thread compiles", () => {
    const programs = ["one", "two", "three"].map((name, index) => kernelOf(name, `out[0] = ${index}.0f;`));
    const compiled = compileOnTwoThreads(programs);
    assert.equal(emulator.calls("nvrtcCompileProgram"), 3);
    const again = compileOnTwoThreads(programs.toReversed());
    assert.deepEqual([...compiled].sort(), [...again].sort());
    assert.equal(new Set([...compiled.values()].map((cubin) => Buffer.from(cubin).toString("hex"))).size, 3);
  });

  test("an error in one of several kernels is reported by the kernel's name, with the compiler's log", () => {
    const [one, two] = [kernelOf("one", "out[0] = 0.0f;"), kernelOf("two", "out[0] = 1.0f;")];
    const wrong = kernelOf("wrong", "out[0] = nothing + nothing;");
    assert.throws(
      () => compileOnTwoThreads([one, wrong, { ...two, code: `${two.code}// a long text, to be first` }]),
      {
        code: "KERNEL_FAILED",
        message:
          /^Kernel "wrong" did not compile for sm_90 \(NVRTC_ERROR_COMPILATION\):\n.*wrong\.cu:1:\d+: error: ‘nothing’/s,
        numbers: { kernel: "wrong", status: 6 },
      },
    );
  });
});
