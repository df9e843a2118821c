/** A control group of the kernel's, for tests of what a container may hold; root makes one where its folder can be written. */

import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after } from "node:test";

interface GroupKind {
  /** The folder that new groups are made in. */
  readonly parent: string;
  readonly limit: string;
}

function findKind(): GroupKind | string {
  const own = readFileSync("/proc/self/cgroup", "utf8");
  const version1 = /^\d+:[^:\n]*\bmemory\b[^:\n]*:(\/.*)$/m.exec(own)?.[1];
  const kinds: readonly GroupKind[] = [
    ...(version1 === undefined
      ? []
      : [{ parent: join("/sys/fs/cgroup/memory", version1), limit: "memory.limit_in_bytes" }]),
    { parent: "/sys/fs/cgroup", limit: "memory.max" },
  ];
  for (const { parent, limit } of kinds) {
    const folder = join(parent, `holdfast-try-${process.pid}`);
    try {
      mkdirSync(folder);
    } catch {
      continue;
    }
    const hasLimit = existsSync(join(folder, limit));
    rmdirSync(folder);
    if (hasLimit) return { parent, limit };
  }
  return "no control group with a memory limit can be made here";
}

const kind = process.platform === "linux" ? findKind() : "there are no control groups here";

/** Why there can be no group here; false where there can be. */
export const groupsMissing: string | false = typeof kind === "string" ? kind : false;

/** The folders that were made; inner ones go first. */
const made: string[] = [];
after(() => {
  for (const folder of made.reverse()) rmdirSync(folder);
});

/** Makes a group, inside another one where that is given. Returns its folder; a shell joins it by writing to `cgroup.procs`. */
export function makeGroup(name: string, limit: number, inside?: string): string {
  if (typeof kind === "string") throw new Error(kind);
  const folder = join(inside ?? kind.parent, `holdfast-${name}-${process.pid}`);
  mkdirSync(folder);
  made.push(folder);
  writeFileSync(join(folder, kind.limit), String(limit));
  return folder;
}
