/** Sample test files for the tests of the test runner, by their paths below dist. */

import { effort } from "../effort.js";
import type { Files } from "./run-samples.js";

/** Tests whose numbers are known. */
export const counted = {
  "counted/failing": `
    import assert from "node:assert/strict";
    describe("suite", () => it("differs", () => assert.deepEqual({ a: 1 }, { a: 2 })));
    test("parent", async (t) => { await t.test("fine", () => {}); throw new Error("parent's own"); });
    describe("hooked", () => { before(() => { throw new Error("hook broke"); }); it("never", () => {}); });`,
  "counted/leaves": `
    test("one", () => {});
    describe("suite", () => { it("two", () => {}); describe("inner", () => it("three", () => {})); });
    test("parent", async (t) => { await t.test("four", () => {}); });
    describe("a suite with nothing in it", () => {});
    test("five", (t) => t.diagnostic("a figure: 7"));`,
  "counted/reasons": `
    test("a", { skip: "needs a GPU" }, () => {});
    test("b", (t) => t.skip("needs a GPU"));
    test("c", { todo: "waits for streams" }, () => { throw new Error("not yet"); });`,
  "counted/unreasoned": `
    test("d", { skip: true }, () => {});
    test("e", (t) => t.skip());
    test("f", { todo: true }, () => {});`,
};

/** Files that end, but not as they should. */
export const ending: Files = {
  "ending/crashing": `throw new Error("at import");`,
  "ending/empty": "",
  "ending/killed": `test("dies", () => process.kill(process.pid, "SIGKILL"));`,
  "ending/quitting": `
    test("seen", async () => { await new Promise((resolve) => setTimeout(resolve, 50)); });
    test("quits", () => process.exit(0));
    test("unseen", () => {});`,
};

/** Files that don't end. */
export const hanging: Files = {
  "hanging/blocked": `
    process.on("SIGTERM", () => {});
    test("turns", async () => { await new Promise((resolve) => setTimeout(resolve, 50)); block(); });
    const block = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);`,
  "hanging/sound": `test("still runs", () => {});`,
};

/** In a group also one that throws is run alone. */
export const endingAlone = effort({
  quick: ["ending/crashing", "ending/quitting"],
  thorough: Object.keys(ending),
});

/** One that the group can't keep, so that it is run alone too, and one that ends well after all others. */
export const endingInGroup = {
  "ending/crashing-late": `test("ends", () => { setTimeout(() => { throw new Error("too late"); }, 20); });`,
  "ending/sound": `test("still runs", () => {});`,
};

/** A test that prints the id of its process. */
const tellsProcess = `test("runs", (t) => t.diagnostic(String(process.pid)));`;

/** Opening a pipe to read is a file request that takes until somebody opens it to write. */
const requestsFile = `
  import { execFileSync, spawn } from "node:child_process";
  import { open } from "node:fs";
  test("requests a file", () => {
    execFileSync("mkfifo", ["pipe"]);
    open("pipe", () => {});
    spawn("sh", ["-c", "sleep 0.3; : > pipe"], { stdio: "ignore" }).unref();
  });`;

/** Files that share a process, and files that can't. */
export const sharing = {
  "sharing/first": `globalThis.hookCalls = 0; beforeEach(() => { globalThis.hookCalls++; });
    test("one", () => {}); ${tellsProcess} ${requestsFile}`,
  "sharing/second": `${tellsProcess}
    test("no hook", () => { if (globalThis.hookCalls !== 3) throw new Error("called here"); });`,
  "waiting/a-changing": `process.env.LEFT = "1"; ${tellsProcess}`,
  "waiting/b-reading": `${tellsProcess}
    test("clean", () => { if (process.env.LEFT) throw new Error("left"); });`,
};

/** In a group it is run again alone, and then it doesn't end. */
export const leaving: Files = {
  "waiting/c-sound": tellsProcess,
  "waiting/d-leaving": `setInterval(() => {}, 1000); ${tellsProcess}`,
};

export const printing = {
  "printing/a-quiet": `console.log("from a"); test("fine", () => {});`,
  "printing/b-failing": `console.log("from b"); console.error("also b");
    test("fails", () => { throw new Error("no"); });`,
  "printing/c-quiet": `console.log("from c"); test("fine", () => {});`,
};

/** The orphan would run for ever, and it holds the pipes that the runner reads. */
const leavesOrphan = `
  import { spawn } from "node:child_process";
  const orphan = () => spawn("sleep", ["100000"], { stdio: "inherit" });
  test("leaves a process", () => { orphan().unref(); });`;

/** Each passes only while the others run too. */
export const meeting: Files = Object.fromEntries(
  ["alone/meeting/a", "alone/meeting/b", "alone/waiting/c"].map((name) => [
    name,
    `import { meet } from "../../meet.js"; ${tellsProcess}
    test("meets", () => meet(${JSON.stringify(name)})); ${leavesOrphan}`,
  ]),
);
export const meet = `
  import { readdirSync, writeFileSync } from "node:fs";
  const folder = new URL("./", import.meta.url);
  const isHere = (file) => file.startsWith("here-");
  export async function meet(name) {
    writeFileSync(new URL("here-" + name.at(-1), folder), "");
    while (readdirSync(folder).filter(isHere).length < ${Object.keys(meeting).length})
      await new Promise((resolve) => setTimeout(resolve, 20));
  }`;

export const efforts = {
  "efforts/quick": `test("small buffers", () => {
    if (process.env.TEST_HOLDFAST_SIZES !== "8") throw new Error("not small");
  });`,
  "efforts/sampling": `import { effort } from "../test/support/effort.js";
    test("an effort", (t) => t.diagnostic("effort: " + effort));`,
  "efforts/soak.long": `
    test("real buffers", () => { if ("TEST_HOLDFAST_SIZES" in process.env) throw new Error("small"); });
    test("on a GPU", { skip: "needs a GPU" }, () => {});`,
};
export const effortFile = { "test/support/effort.js": "export const effort = process.env.TEST_EFFORT;" };
