/**
 * The test runner's own proof: sample files that fail, crash, hang, skip and hide are all found and counted.
 *
 * @mostlyWaits for files that hang
 */

import assert from "node:assert/strict";
import test, { describe } from "node:test";
import { effort } from "../test/support/effort.js";
import { type Files, runSamples } from "../test/support/test-runner/run-samples.js";
import {
  counted,
  effortFile,
  efforts,
  ending,
  endingAlone,
  endingInGroup,
  hanging,
  leaving,
  meet,
  meeting,
  printing,
  sharing,
} from "../test/support/test-runner/samples.js";

/** One run over samples of all kinds: each process that it starts shows several things. */
const everything = runSamples(
  {
    ...counted,
    ...ending,
    ...Object.fromEntries(endingAlone.map((name) => [`alone/${name}`, ending[name] ?? ""])),
    ...endingInGroup,
    ...sharing,
    ...printing,
    ...meeting,
    ...efforts,
    stale: `test("ghost", () => {});`,
  },
  {
    imported: { ...effortFile, "meet.js": meet },
    // The longest start first, so these run at once.
    durations: Object.fromEntries(Object.keys(meeting).map((name) => [`${name}.test.ts`, 60])),
  },
);

const nothingChosen = runSamples(counted, { args: ["tensor"] });

/**
 * A run over samples that don't end. Before the time limit each must have started its test, also on a slow machine, so the limit is
 * several times what a run without any test takes.
 */
const endless = nothingChosen.then(async ({ durationMs }) => {
  const limit = String(Math.max(2, Math.ceil(durationMs / 100)));
  const alone = effort({
    quick: {},
    thorough: { "alone/hanging/blocked": hanging["hanging/blocked"] ?? "" },
  });
  const outcome = await runSamples({ ...hanging, ...alone, ...leaving }, { args: ["--timeout", limit] });
  return { ...outcome, told: new RegExp(`did not end within ${limit} s and was killed`) };
});

/** The line of a file, and its notes. */
function lineOf(printed: string, file: string): string {
  return (
    printed.match(new RegExp(`^(?:ok  |FAIL) ${file}\\.test\\.ts {2}.*(?:\n {5}note: .*)*`, "m"))?.[0] ?? ""
  );
}

/** What the line of a file tells of its tests: "2 passed, 1 failed". */
function countsOf(printed: string, file: string): string {
  return lineOf(printed, file).match(/ {2}(\d.*(?:passed|failed|skipped)) {2}/)?.[1] ?? "";
}

function processOf(printed: string, file: string): string | undefined {
  return lineOf(printed, file).match(/note: (\d+)/)?.[1];
}

/** What the summary says about the failures of a file. */
function failuresOf(printed: string, file: string): string {
  const [failures = ""] = printed.split("\n\nslowest:");
  const told = failures.split(/\n(?=FAIL )/).filter((text) => text.startsWith(`FAIL ${file}.test.ts › `));
  return told.join("\n");
}

// Two at once: most of them wait for processes.
describe("the test runner", { concurrency: 2 }, () => {
  test("choosing no file is a failure", async () => {
    const none = await nothingChosen;
    assert.equal(none.lastLine, "0 passed, 0 failed, 0 skipped");
    assert.equal(none.exitCode, 1);
  });

  /** A device under test, which this opens. */
  const deviceFiles = (open: string): Files => ({
    "test/support/test-device.js": `export const testDevice = "sample";
      export const openTestDriver = () => { ${open} };`,
    "test/support/devices.js":
      'import { testDevice } from "./test-device.js";\nexport const device = testDevice;',
    "test/support/numbers.js": 'export { seven } from "./seven.js";',
    "test/support/seven.js": 'import "./numbers.js";\nexport const seven = 7;',
  });
  /** Passes if no other test does the same at that time. */
  const beAlone = `
    import { rmSync, writeFileSync } from "node:fs";
    async function beAlone() {
      writeFileSync("busy", "", { flag: "wx" });
      await new Promise((resolve) => setTimeout(resolve, 500));
      rmSync("busy");
    }`;
  const deviceSamples = {
    "src/direct": `import { testDevice } from "../test/support/test-device.js";
      test(testDevice, beAlone); test("told", (t) => t.diagnostic("a figure: 7")); ${beAlone}`,
    "src/other": `import { testDevice } from "../test/support/test-device.js"; test(testDevice, () => {});`,
    "test/waiting/through": `import {\n  device,\n} from "../support/devices.js";
      test(device, beAlone); ${beAlone}`,
    "test/without": `import { seven } from "./support/numbers.js"; test(String(seven), () => {});`,
  };
  const onDevice = ["--suites", "device", "--at-once", "1", "direct", "test/"];

  const onSampleDevice = runSamples(deviceSamples, {
    args: onDevice,
    imported: deviceFiles("return { describe: () => ({ name: 'a sample' }), close: () => {} };"),
  });

  test("the device suites are the files whose imports lead to the device", async () => {
    const { printed } = await onSampleDevice;
    assert.match(printed, /^On sample, a sample\.\nok {3}test\/waiting\/through.*\nok {3}src\/direct/);
    assert.doesNotMatch(printed, /without/);
  });

  test("names given as arguments choose the files, and a run that passes exits with 0", async () => {
    const { exitCode, lastLine, printed } = await onSampleDevice;
    assert.doesNotMatch(printed, /other/);
    assert.equal(lastLine, "3 passed, 0 failed, 0 skipped");
    assert.equal(exitCode, 0);
    assert.match(
      printed,
      /^ok {3}src\/direct\.test\.ts {2}2 passed {2}[\d.]+s\n {5}note: a figure: 7\n\nslowest:\n/m,
    );
    assert.ok(!printed.includes("\x1b"), "a pipe gets no colour");
  });

  test("with --at-once 1 no file runs next to another, also not one that mostly waits", async () => {
    const { printed } = await onSampleDevice;
    assert.equal(countsOf(printed, "test/waiting/through"), "1 passed");
    assert.equal(countsOf(printed, "src/direct"), "2 passed");
  });

  test("the device is opened first, and one that can't be is told once", async () => {
    const imported = deviceFiles("throw new Error('NO_CUDA: none');");
    const missing = await runSamples(deviceSamples, { args: onDevice, imported });
    assert.equal(missing.exitCode, 1);
    assert.match(missing.printed, /NO_CUDA: none/);
    assert.doesNotMatch(missing.printed, /passed/);
  });

  test("--suites long runs the files named *.long.test.ts, with the buffers of a real run, and those that can try more", async () => {
    const long = await runSamples(efforts, { args: ["--suites", "long"], imported: effortFile });
    assert.match(long.printed, /ok {3}efforts\/soak\.long\.test\.ts/);
    assert.match(long.printed, /note: effort: all/);
    assert.doesNotMatch(long.printed, /quick/);
    assert.match(long.printed, /skipped: 1 × needs a GPU/);
    assert.equal(long.lastLine, "2 passed, 0 failed, 1 skipped");
    assert.match(
      long.kept.join(),
      /^npm run test:long, [\d-]+, .*ok {3}efforts\/sampling\.test\.ts.*2 passed, 0 failed, 1 skipped\n$/s,
    );
  });

  test("suites that there are not are rejected", async () => {
    const rejected = await runSamples({}, { args: ["--suites", "longer"] });
    assert.equal(rejected.exitCode, 1);
    assert.match(rejected.printed, /--suites takes all, device or long; this is "longer"\./);
  });

  test("without --suites long the buffers are small, and long files and all efforts are left out", async () => {
    const { printed, kept } = await everything;
    assert.equal(countsOf(printed, "efforts/quick"), "1 passed");
    assert.match(lineOf(printed, "efforts/sampling"), /note: effort: undefined/);
    assert.doesNotMatch(printed, /soak/);
    assert.deepEqual(kept, []);
  });

  test("the last line is the sum of the files, and a run that fails exits with 1", async () => {
    const { printed, lastLine, exitCode } = await everything;
    const sums = { passed: 0, failed: 0, skipped: 0 };
    for (const [line] of printed.matchAll(/^(?:ok {2}|FAIL) \S+ {2}\d.*$/gm)) {
      for (const [, count, kind] of line.matchAll(/(\d+) (passed|failed|skipped)/g))
        sums[kind as keyof typeof sums] += Number(count);
    }
    assert.ok(sums.passed >= 20, "most pass");
    assert.equal(lastLine, `${sums.passed} passed, ${sums.failed} failed, ${sums.skipped} skipped`);
    assert.equal(exitCode, 1);
  });

  test("only leaf tests are counted", async () => {
    const { printed } = await everything;
    assert.equal(countsOf(printed, "counted/leaves"), "5 passed");
    assert.match(lineOf(printed, "counted/leaves"), /^ok .*\n {5}note: a figure: 7$/);
  });

  test("failures are printed in full and counted once, whatever stands around them", async () => {
    const { printed } = await everything;
    assert.equal(countsOf(printed, "counted/failing"), "1 passed, 4 failed");
    const told = failuresOf(printed, "counted/failing");
    assert.match(told, /FAIL counted\/failing\.test\.ts › suite › differs\n {2}AssertionError/);
    assert.match(told, /\+ {3}a: 1\n {2}- {3}a: 2/);
    assert.match(told, /parent's own/);
    assert.match(told, /failed running before hook\n {2}Error: hook broke/);
  });

  test("a skip or a todo needs its reason, and those with the same reason are grouped", async () => {
    const { printed } = await everything;
    assert.equal(countsOf(printed, "counted/reasons"), "0 passed, 3 skipped");
    assert.equal(countsOf(printed, "counted/unreasoned"), "0 passed, 3 failed");
    assert.match(
      printed,
      /skipped: 2 × needs a GPU\n {2}counted\/reasons\.test\.ts › a\n {2}counted\/reasons\.test\.ts › b\n/,
    );
    assert.match(printed, /skipped: 1 × todo: waits for streams/);
  });

  /** What is told of a file that doesn't end as it should. */
  const toldOfEnding: Readonly<Record<string, RegExp>> = {
    "ending/crashing":
      / › \(the file\)\n {2}(?:Error: at import|The file exited with code 1[\s\S]*\n {2}Error: at import)/,
    "ending/empty": / › \(the file\)\n {2}The file ended without having reported a test/,
    "ending/killed": /was killed by SIGKILL/,
    "ending/quitting": / › \(the file\)\n {2}The file (?:ended without|exited with code 0 before)/,
  };
  for (const [where, folder, names] of [
    ["in a group", "", Object.keys(ending)],
    ["alone", "alone/", endingAlone],
  ] as const) {
    test(`a file that crashes, quits early or has no test is a failure, ${where}`, async () => {
      const { printed } = await everything;
      for (const name of names) {
        // The count varies: a test may be reported before its process ends, or not.
        assert.match(countsOf(printed, folder + name), /^[01] passed, 1 failed$/, name);
        assert.match(failuresOf(printed, folder + name), toldOfEnding[name] ?? assert.fail(name));
      }
    });
  }

  for (const [where, folder] of effort({
    quick: [["in a group", ""]],
    thorough: [
      ["in a group", ""],
      ["alone", "alone/"],
    ],
  })) {
    test(`a file that hangs is killed and is a failure, ${where}`, async () => {
      const { printed, told } = await endless;
      const file = `${folder}hanging/blocked`;
      assert.equal(countsOf(printed, file), "0 passed, 1 failed");
      assert.match(failuresOf(printed, file), told);
      assert.match(failuresOf(printed, file), /It was running: turns\./);
      assert.equal(countsOf(printed, "hanging/sound"), "1 passed");
    });
  }

  test("a file that throws when its tests have ended is a failure, and those after it run", async () => {
    const { printed } = await everything;
    assert.equal(countsOf(printed, "ending/crashing-late"), "1 passed, 1 failed");
    assert.match(lineOf(printed, "ending/crashing-late"), /^FAIL .*\n {5}note: .*"Error: too late"/);
    assert.equal(countsOf(printed, "ending/sound"), "1 passed");
  });

  test("files share a process, also if a file request ends late, hooks are a file's own, and a file is alone where it says so", async () => {
    const { printed } = await everything;
    assert.equal(countsOf(printed, "sharing/first"), "3 passed");
    assert.equal(countsOf(printed, "sharing/second"), "2 passed");
    assert.ok(processOf(printed, "sharing/first"));
    assert.equal(processOf(printed, "sharing/first"), processOf(printed, "sharing/second"));
    const alone = Object.keys(meeting).map((file) => processOf(printed, file) ?? assert.fail(file));
    assert.equal(new Set(alone).size, alone.length);
  });

  test("a file that changes the process is run again alone, and counted once", async () => {
    const { printed } = await everything;
    const files = ["waiting/a-changing", "waiting/b-reading"];
    assert.deepEqual(
      files.map((file) => countsOf(printed, file)),
      ["1 passed", "2 passed"],
    );
    const processes = files.map((file) => processOf(printed, file) ?? assert.fail(file));
    assert.equal(new Set(processes).size, 2, "each file ran in its own process");
  });

  test("a file that leaves something running is run again alone, and counted once", async () => {
    const { printed, told } = await endless;
    const [sound, left] = Object.keys(leaving).map((file) => processOf(printed, file) ?? assert.fail(file));
    assert.notEqual(sound, left);
    assert.equal(countsOf(printed, "waiting/c-sound"), "1 passed");
    assert.equal(countsOf(printed, "waiting/d-leaving"), "1 passed, 1 failed");
    assert.match(failuresOf(printed, "waiting/d-leaving"), told);
  });

  test("the output of a file in a group is printed with that file's failures only", async () => {
    const { printed } = await everything;
    assert.match(printed, /printed by printing\/b-failing\.test\.ts:\n {2}from b\n {2}also b\n/);
    assert.doesNotMatch(printed, /from [ac]/);
  });

  test("two files run at a time, and one that mostly waits next to them", async () => {
    const { printed } = await everything;
    for (const file of Object.keys(meeting)) assert.equal(countsOf(printed, file), "3 passed", file);
  });

  test("what a test file leaves running is ended with it", async () => {
    const { printed } = await everything;
    for (const file of Object.keys(meeting)) assert.match(lineOf(printed, file), /^ok /, file);
  });

  test("a compiled test whose source is gone is not run", async () => {
    const { printed } = await everything;
    assert.doesNotMatch(printed, /stale|ghost/);
  });
});
