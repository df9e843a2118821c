/** One process writes a run's folder: a living process keeps its lock, and the lock of a dead process is taken over. */

import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../../test/support/folders.js";
import { rejects } from "../../../test/support/rejects.js";
import { identifyProcess, stateOfProcess } from "./process-identity.js";
import { lockName, RunLock } from "./run-lock.js";

const justNow = () => 0;
const dead = spawnSync("true").pid;

/** A folder whose lock has this text. */
function lockedBy(text: string): { readonly folder: string; readonly path: string } {
  const folder = makeFolder();
  const path = join(folder, lockName);
  writeFileSync(path, text);
  return { folder, path };
}

test("a lock is held once, and free again when it is released", () => {
  const folder = makeFolder();
  const lock = RunLock.take(folder, justNow);
  rejects(
    "RUN_LOCKED",
    () => RunLock.take(folder, justNow),
    new RegExp(`held by process ${process.pid}\\. Wait`),
  );
  assert.deepEqual(readdirSync(folder), [lockName]);
  lock.release();
  lock.release();
  assert.deepEqual(readdirSync(folder), []);
  RunLock.take(folder, justNow).release();
});

test("a living process keeps its lock, and a dead one's is taken over", () => {
  const living = lockedBy(JSON.stringify(identifyProcess(process.ppid)));
  rejects("RUN_LOCKED", () => RunLock.take(living.folder, justNow), /Wait for it, stop it/);
  const gone = lockedBy(JSON.stringify({ pid: dead, host: hostname() }));
  RunLock.take(gone.folder, justNow);
  assert.match(readFileSync(gone.path, "utf8"), new RegExp(`"pid":${process.pid}\\b`));
  assert.deepEqual(readdirSync(gone.folder), [lockName]);
});

test("a process that only has the number of the owner is not the owner", (t) => {
  const { pid, host, startTicks } = identifyProcess();
  if (startTicks === undefined) return t.skip("this system does not report start times of processes");
  const { folder } = lockedBy(JSON.stringify({ pid, host, startTicks: startTicks - 1 }));
  RunLock.take(folder, justNow).release();
});

test("an owner on another machine keeps the lock until its run has been silent for two minutes", () => {
  const { folder } = lockedBy(JSON.stringify({ pid: dead, host: "another.example" }));
  const take = (silentMs: number) => RunLock.take(folder, () => silentMs);
  rejects(
    "RUN_LOCKED",
    () => take(119_000),
    /process \d+ on another\.example\. Its last heartbeat was 119s ago.*After 2m without a heartbeat, the next start takes over the lock\./,
  );
  take(120_000).release();
});

test("a lock without an owner is free", () => {
  for (const text of ["", "{", "[]", '{"pid":"x"}', "\0\0\0"])
    RunLock.take(lockedBy(text).folder, justNow).release();
});

test("a dangling symbolic link instead of a lock is free", () => {
  const folder = makeFolder();
  symlinkSync("nowhere", join(folder, lockName));
  RunLock.requireFree(folder, justNow);
  RunLock.take(folder, justNow).release();
  assert.deepEqual(readdirSync(folder), []);
});

test("a pipe or a folder instead of the lock is rejected, with advice", () => {
  const [piped, nested] = [makeFolder(), makeFolder()];
  execFileSync("mkfifo", [join(piped, lockName)]);
  mkdirSync(join(nested, lockName));
  for (const folder of [piped, nested])
    rejects("BAD_FILE", () => RunLock.take(folder, justNow), /not a plain file\. Remove it/);
});

test("a lock that another process has taken over is not released", () => {
  const folder = makeFolder();
  const lock = RunLock.take(folder, justNow);
  const path = join(folder, lockName);
  writeFileSync(path, JSON.stringify(identifyProcess(process.ppid)));
  lock.release();
  assert.ok(existsSync(path));
});

test("a missing folder can't be locked", () => {
  rejects(
    "BAD_FILE",
    () => RunLock.take(join(makeFolder(), "none"), justNow),
    /can't be taken: ENOENT.*Check the path/,
  );
});

/** A process that takes a folder's lock, says so, and ends when its stdin does; optionally in a new PID namespace. */
async function startTaker(folder: string, { isApart = false } = {}) {
  const program = `
    import { RunLock } from ${JSON.stringify(new URL("./run-lock.js", import.meta.url).href)};
    import { spawn } from "node:child_process";
    try {
      RunLock.take(${JSON.stringify(folder)}, () => 0);
      const child = spawn("sleep", ["60"], { stdio: "ignore", detached: true });
      child.unref();
      console.log("taken " + child.pid);
      process.stdin.resume();
    } catch (error) {
      console.log(error.code + " " + error.message);
    }
  `;
  const command = [process.execPath, "--input-type=module", "--eval", program];
  const [name = "", ...args] = isApart ? [...apart, ...command] : command;
  const child = spawn(name, args, { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const ended = once(child, "exit");
  return { said: String(line).trim(), child, ended };
}

const apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
const isApartMissing =
  spawnSync(apart[0] ?? "", [...apart.slice(1), "true"]).status === 0
    ? false
    : "this user can't make a PID namespace";

test("two PID namespaces with the same host name don't both get a run", {
  skip: isApartMissing,
}, async () => {
  const folder = makeFolder();
  const first = await startTaker(folder, { isApart: true });
  assert.match(first.said, /^taken/);
  const second = await startTaker(folder, { isApart: true });
  assert.match(second.said, /^RUN_LOCKED .*lock\.json is held by process \d+ in another container/);
  rejects("RUN_LOCKED", () => RunLock.requireFree(folder, () => 3_600_000), /in another container/);
  first.child.stdin.end();
  second.child.stdin.end();
  await Promise.all([first.ended, second.ended]);
  RunLock.take(folder, justNow).release();
});

test("a lock ends with its process, by SIGKILL too, although a program that it started lives on", async () => {
  const folder = makeFolder();
  const { said, child, ended } = await startTaker(folder);
  rejects("RUN_LOCKED", () => RunLock.take(folder, justNow), new RegExp(`held by process ${child.pid}\\.`));
  child.kill("SIGKILL");
  await ended;
  RunLock.take(folder, justNow).release();
  process.kill(Number(said.split(" ")[1]), "SIGKILL");
});

test("on a disk without locks, a process in another container keeps the run until its heartbeat is too old", () => {
  const { folder } = lockedBy(JSON.stringify({ ...identifyProcess(), pid: dead, pidNamespace: "pid:[1]" }));
  rejects(
    "RUN_LOCKED",
    () => RunLock.take(folder, justNow),
    /in another container, .* last heartbeat was 0ms ago/,
  );
  RunLock.take(folder, () => 120_000).release();
});

test("this process is running, a dead one is gone, and one on another machine is elsewhere", () => {
  const me = identifyProcess();
  assert.equal(stateOfProcess(me), "running");
  assert.equal(stateOfProcess({ pid: dead, host: hostname() }), "gone");
  assert.equal(stateOfProcess({ ...me, host: "another.example" }), "elsewhere");
});
