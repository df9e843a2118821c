/** Fake root folders: a machine of any size, with any amount of free memory, or in any control group. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

export interface FakeHost {
  /** For `hostRoot` options. */
  readonly root: string;
  /** Changes the host's memory figures. */
  set(totalBytes: number, availableBytes: number): void;
  remove(): void;
}

export function fakeHost(totalBytes: number, availableBytes: number): FakeHost {
  const root = mkdtempSync(join(tmpdir(), "holdfast-host-"));
  mkdirSync(join(root, "proc"));
  const set = (total: number, available: number): void => {
    const row = (name: string, count: number): string =>
      `${`${name}:`.padEnd(16)}${Math.floor(count / 1024)} kB\n`;
    writeFileSync(join(root, "proc/meminfo"), row("MemTotal", total) + row("MemAvailable", available));
  };
  set(totalBytes, availableBytes);
  return { root, set, remove: () => rmSync(root, { recursive: true }) };
}

/** Runs `check` with a root folder that has these files, and removes it. */
export function withHostFiles(files: Readonly<Record<string, string>>, check: (root: string) => void): void {
  const root = mkdtempSync(join(tmpdir(), "holdfast-host-"));
  try {
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), content);
    }
    check(root);
  } finally {
    rmSync(root, { recursive: true });
  }
}
