/** The test runner's own proof: sample files that fail, crash, hang, skip and hide are all found and counted. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { describe, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";

const opening = 'import test, { before, describe, it } from "node:test";';

/** The runner in the source tree: this file runs compiled, from dist/scripts/. */
const runner = fileURLToPath(new URL("../../scripts/test.mjs", import.meta.url));

interface Outcome {
  readonly exitCode: number | null;
  readonly printed: string;
  readonly lastLine: string;
  /** What the run has left in bench/results. */
  readonly kept: readonly string[];
}

interface SampleOptions {
  readonly args?: readonly string[];
  /** Files that the tests import: path below dist → code. */
  readonly imported?: Readonly<Record<string, string>>;
  /** Whether each file asks for a process of its own; by default they share one. */
  readonly isAlone?: boolean;
  /** The files that say that they mostly wait. */
  readonly waiting?: readonly string[];
}

/** Runs the runner over a package that has just these tests, given as file name → code. */
async function runSamples(
  t: TestContext,
  samples: Readonly<Record<string, string>>,
  { args = [], imported = {}, isAlone = false, waiting = [] }: SampleOptions = {},
): Promise<Outcome> {
  const root = mkdtempSync(join(tmpdir(), "holdfast-runner-"));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  writeFileSync(join(root, "package.json"), '{ "type": "module" }');
  for (const [name, code] of Object.entries(samples)) {
    const compiled = join(root, "dist", `${name}.test.js`);
    mkdirSync(dirname(compiled), { recursive: true });
    writeFileSync(compiled, `${opening}\n${code}`);
    const source = join(root, `${name}.test.ts`);
    mkdirSync(dirname(source), { recursive: true });
    const signs = [isAlone && "@ownProcess: a sample", waiting.includes(name) && "@mostlyWaits for nothing"];
    if (!name.startsWith("stale")) writeFileSync(source, `// ${signs.filter(Boolean).join(" ")}`);
  }
  for (const [path, code] of Object.entries(imported)) {
    const compiled = join(root, "dist", path);
    mkdirSync(dirname(compiled), { recursive: true });
    writeFileSync(compiled, code);
  }
  const child = spawn(process.execPath, [runner, ...args], { cwd: root });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
  }
  const exitCode = await new Promise<number | null>((resolve) => child.on("close", resolve));
  const results = join(root, "bench/results");
  const kept = existsSync(results)
    ? readdirSync(results).map((name) => readFileSync(join(results, name), "utf8"))
    : [];
  return { exitCode, printed, lastLine: printed.trimEnd().split("\n").at(-1) ?? "", kept };
}

// Two at once: most of them wait for processes.
describe("the test runner", { concurrency: 2 }, () => {
  test("only leaf tests are counted, and a run that passes exits with 0", async (t) => {
    const { exitCode, lastLine, printed } = await runSamples(t, {
      leaves: `
      test("one", () => {});
      describe("suite", () => { it("two", () => {}); describe("inner", () => it("three", () => {})); });
      test("parent", async (t) => { await t.test("four", () => {}); });
      describe("a suite with nothing in it", () => {});
      test("five", (t) => t.diagnostic("a figure: 7"));`,
    });
    assert.equal(lastLine, "5 passed, 0 failed, 0 skipped");
    assert.equal(exitCode, 0);
    assert.match(
      printed,
      /^ok {3}leaves\.test\.ts {2}5 passed {2}[\d.]+s\n {5}note: a figure: 7\n\nslowest:\n/,
    );
    assert.ok(!printed.includes("\x1b"), "a pipe gets no colour");
  });

  test("failures are printed in full and counted once, whatever stands around them", async (t) => {
    const { exitCode, lastLine, printed } = await runSamples(t, {
      failing: `
      import assert from "node:assert/strict";
      describe("suite", () => it("differs", () => assert.deepEqual({ a: 1 }, { a: 2 })));
      test("parent", async (t) => { await t.test("fine", () => {}); throw new Error("parent's own"); });
      describe("hooked", () => { before(() => { throw new Error("hook broke"); }); it("never", () => {}); });`,
    });
    assert.equal(lastLine, "1 passed, 4 failed, 0 skipped");
    assert.equal(exitCode, 1);
    assert.match(printed, /FAIL failing\.test\.ts › suite › differs\n {2}AssertionError/);
    assert.match(printed, /\+ {3}a: 1\n {2}- {3}a: 2/);
    assert.match(printed, /parent's own/);
    assert.match(printed, /failed running before hook\n {2}Error: hook broke/);
  });

  test("a skip or a todo needs its reason, and those with the same reason are grouped", async (t) => {
    const { exitCode, lastLine, printed } = await runSamples(t, {
      reasons: `
      test("a", { skip: "needs a GPU" }, () => {});
      test("b", (t) => t.skip("needs a GPU"));
      test("c", { todo: "waits for streams" }, () => { throw new Error("not yet"); });`,
      unreasoned: `
      test("d", { skip: true }, () => {});
      test("e", (t) => t.skip());
      test("f", { todo: true }, () => {});`,
    });
    assert.equal(lastLine, "0 passed, 3 failed, 3 skipped");
    assert.equal(exitCode, 1);
    assert.match(printed, /skipped: 2 × needs a GPU\n {2}reasons\.test\.ts › a\n {2}reasons\.test\.ts › b\n/);
    assert.match(printed, /skipped: 1 × todo: waits for streams/);
  });

  for (const isAlone of [false, true]) {
    test(`a file that crashes, quits early, hangs or has no test is a failure, ${isAlone ? "alone" : "in a group"}`, async (t) => {
      const { exitCode, lastLine, printed } = await runSamples(
        t,
        {
          crashing: `throw new Error("at import");`,
          "crashing-late": `test("ends", () => { setTimeout(() => { throw new Error("too late"); }, 20); });`,
          empty: "",
          hanging: `
        process.on("SIGTERM", () => {});
        test("turns", async () => { await new Promise((resolve) => setTimeout(resolve, 50)); block(); });
        const block = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);`,
          killed: `test("dies", () => process.kill(process.pid, "SIGKILL"));`,
          quitting: `
        test("seen", async () => { await new Promise((resolve) => setTimeout(resolve, 50)); });
        test("quits", () => process.exit(0));
        test("unseen", () => {});`,
          sound: `test("still runs", () => {});`,
        },
        { args: ["--timeout", "3"], isAlone },
      );
      assert.match(
        lastLine,
        /^[123] passed, 6 failed, 0 skipped$/,
        "the count varies: a test may be reported before its process ends, or not",
      );
      assert.equal(exitCode, 1);
      assert.match(
        printed,
        /FAIL crashing\.test\.ts › \(the file\)\n {2}(?:The file exited with code 1|Error: at import)/,
      );
      assert.match(printed, /Error: at import/);
      assert.match(printed, /FAIL crashing-late\.test\.ts .*\n {5}note: .*"Error: too late"/);
      assert.match(
        printed,
        /FAIL empty\.test\.ts › \(the file\)\n {2}The file ended without having reported a test/,
      );
      assert.match(printed, /did not end within 3 s and was killed\. It was running: turns\./);
      assert.match(printed, /was killed by SIGKILL/);
      assert.match(printed, /FAIL quitting\.test\.ts › \(the file\)/);
      assert.match(printed, /ok {3}sound\.test\.ts {2}1 passed/);
    });
  }

  /** A test that prints the id of its process. */
  const tellsProcess = `test("runs", (t) => t.diagnostic(String(process.pid)));`;

  function processOf(printed: string, file: string): string | undefined {
    return printed.match(new RegExp(`${file}\\.test\\.ts .*\\n {5}note: (\\d+)`))?.[1];
  }

  test("files share a process, hooks are a file's own, and a file is alone where it says so", async (t) => {
    const samples = {
      first: `import { beforeEach } from "node:test"; let calls = 0; beforeEach(() => { calls++; });
      test("one", () => {}); test("two", (t) => t.diagnostic(String(process.pid + 0 * calls)));`,
      second: tellsProcess,
    };
    const { printed, lastLine } = await runSamples(t, samples);
    assert.equal(lastLine, "3 passed, 0 failed, 0 skipped");
    assert.ok(processOf(printed, "first"));
    assert.equal(processOf(printed, "first"), processOf(printed, "second"));
    const alone = await runSamples(t, samples, { isAlone: true });
    assert.equal(alone.lastLine, lastLine);
    assert.notEqual(processOf(alone.printed, "first"), processOf(alone.printed, "second"));
  });

  test("a file that changes the process or leaves something running is run again alone, and counted once", async (t) => {
    const { printed, lastLine } = await runSamples(
      t,
      {
        "a-changing": `process.env.LEFT = "1"; ${tellsProcess}`,
        "b-reading": `test("clean", (t) => { if (process.env.LEFT) throw new Error("left"); t.diagnostic(String(process.pid)); });`,
        "c-leaving": `setInterval(() => {}, 1000); ${tellsProcess}`,
        "d-last": tellsProcess,
      },
      { args: ["--timeout", "3"] },
    );
    assert.equal(lastLine, "4 passed, 1 failed, 0 skipped");
    assert.match(printed, /FAIL c-leaving\.test\.ts › \(the file\)\n {2}The file did not end within 3 s/);
    const processes = ["a-changing", "b-reading", "c-leaving", "d-last"].map((file) =>
      processOf(printed, file),
    );
    assert.equal(new Set(processes).size, 4, "every file ran in its own process");
  });

  test("the output of a file in a group is printed with that file's failures only", async (t) => {
    const { printed } = await runSamples(t, {
      "a-quiet": `console.log("from a"); test("fine", () => {});`,
      "b-failing": `console.log("from b"); console.error("also b"); test("fails", () => { throw new Error("no"); });`,
      "c-quiet": `console.log("from c"); test("fine", () => {});`,
    });
    assert.match(printed, /printed by b-failing\.test\.ts:\n {2}from b\n {2}also b\n/);
    assert.doesNotMatch(printed, /from [ac]/);
  });

  test("a file that mostly waits runs next to the others, except with --at-once 1", async (t) => {
    const meeting = `
      import { existsSync, writeFileSync } from "node:fs";
      const all = ["a", "b", "c"].map((name) => new URL(name, import.meta.url));
      const meet = async (index) => {
        writeFileSync(all[index], "");
        const end = Date.now() + 2000;
        while (!all.every((file) => existsSync(file)) && Date.now() < end) await new Promise((resolve) => setTimeout(resolve, 20));
        if (Date.now() >= end) throw new Error("alone");
      };`;
    const samples = Object.fromEntries(
      ["a", "b", "c"].map((name, index) => [name, `${meeting}\ntest("meets", () => meet(${index}));`]),
    );
    const options = { isAlone: true, waiting: ["c"] };
    const { lastLine } = await runSamples(t, samples, options);
    assert.equal(lastLine, "3 passed, 0 failed, 0 skipped");
    const apart = await runSamples(t, samples, { ...options, args: ["--at-once", "1"] });
    assert.equal(apart.lastLine, "1 passed, 2 failed, 0 skipped");
  });

  test("what a test file leaves running is ended with it", { timeout: 30_000 }, async (t) => {
    // The orphan would run for ever, and it holds the pipes that the runner reads: an end proves that it is gone.
    const { lastLine } = await runSamples(t, {
      orphaning: `
      import { spawn } from "node:child_process";
      const orphan = () => spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "inherit" });
      test("leaves a process", () => { orphan().unref(); });`,
    });
    assert.equal(lastLine, "1 passed, 0 failed, 0 skipped");
  });

  test("names given as arguments choose the files, and choosing none is a failure", async (t) => {
    const samples = { arena: `test("a", () => {});`, budget: `test("b", () => {}); test("c", () => {});` };
    const chosen = await runSamples(t, samples, { args: ["budg"] });
    assert.equal(chosen.lastLine, "2 passed, 0 failed, 0 skipped");
    assert.equal(chosen.exitCode, 0);
    const none = await runSamples(t, samples, { args: ["tensor"] });
    assert.equal(none.lastLine, "0 passed, 0 failed, 0 skipped");
    assert.equal(none.exitCode, 1);
  });

  /** A device under test that opens, and one that does not. */
  const deviceFiles = (open: string): Readonly<Record<string, string>> => ({
    "test/support/test-device.js": `export const testDevice = "sample";\nexport const openTestDriver = () => { ${open} };`,
    "test/support/devices.js":
      'import { testDevice } from "./test-device.js";\nexport const device = testDevice;',
    "test/support/numbers.js": 'export { seven } from "./seven.js";',
    "test/support/seven.js": 'import "./numbers.js";\nexport const seven = 7;',
  });
  const deviceSamples = {
    "src/direct": `import { testDevice } from "../test/support/test-device.js"; test(testDevice, () => {});`,
    "test/through": `import {\n  device,\n} from "./support/devices.js";\ntest(device, () => {});`,
    "test/without": `import { seven } from "./support/numbers.js"; test(String(seven), () => {});`,
  };

  test("the device suites are the files whose imports lead to the device under test, which is opened first", async (t) => {
    const sound = "return { describe: () => ({ name: 'a sample' }), close: () => {} };";
    const args = ["--suites", "device", "--at-once", "1"];
    const run = await runSamples(t, deviceSamples, { args, imported: deviceFiles(sound) });
    assert.match(run.printed, /^On sample, a sample\.\nok {3}src\/direct.*\nok {3}test\/through/);
    assert.equal(run.lastLine, "2 passed, 0 failed, 0 skipped");
    const missing = await runSamples(t, deviceSamples, {
      args,
      imported: deviceFiles("throw new Error('NO_CUDA: none');"),
    });
    assert.equal(missing.exitCode, 1);
    assert.match(missing.printed, /NO_CUDA: none/);
    assert.doesNotMatch(missing.printed, /passed/);
  });

  test("--suites long runs the files named *.long.test.ts, with the buffers of a real run, and those that can try more", async (t) => {
    const samples = {
      quick: `test("small buffers", () => { if (process.env.TEST_HOLDFAST_SIZES !== "8") throw new Error("not small"); });`,
      sampling: `import { effort } from "./test/support/effort.js";
      test("an effort", (t) => t.diagnostic("effort: " + effort));`,
      "soak.long": `
      test("real buffers", () => { if ("TEST_HOLDFAST_SIZES" in process.env) throw new Error("small"); });
      test("on a GPU", { skip: "needs a GPU" }, () => {});`,
    };
    const imported = { "test/support/effort.js": "export const effort = process.env.TEST_EFFORT;" };
    const usual = await runSamples(t, samples, { imported });
    assert.match(usual.printed, /ok {3}quick\.test\.ts/);
    assert.match(usual.printed, /note: effort: undefined/);
    assert.doesNotMatch(usual.printed, /soak/);
    assert.equal(usual.lastLine, "2 passed, 0 failed, 0 skipped");
    assert.deepEqual(usual.kept, []);
    const long = await runSamples(t, samples, { args: ["--suites", "long"], imported });
    assert.match(long.printed, /ok {3}soak\.long\.test\.ts/);
    assert.match(long.printed, /note: effort: all/);
    assert.doesNotMatch(long.printed, /quick/);
    assert.match(long.printed, /skipped: 1 × needs a GPU/);
    assert.equal(long.lastLine, "2 passed, 0 failed, 1 skipped");
    assert.match(
      long.kept.join(),
      /^npm run test:long, [\d-]+, .*ok {3}sampling\.test\.ts.*2 passed, 0 failed, 1 skipped\n$/s,
    );
    const rejected = await runSamples(t, samples, { args: ["--suites", "longer"] });
    assert.equal(rejected.exitCode, 1);
    assert.match(rejected.printed, /--suites takes all, device or long; this is "longer"\./);
  });

  test("a compiled test whose source is gone is not run", async (t) => {
    const { lastLine } = await runSamples(t, {
      kept: `test("a", () => {});`,
      stale: `test("ghost", () => {});`,
    });
    assert.equal(lastLine, "1 passed, 0 failed, 0 skipped");
  });
});
