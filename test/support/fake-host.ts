/** A root folder with a `/proc/meminfo` of the test's choosing: a machine of any size, with any amount free. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface FakeHost {
  /** For `hostRoot` options. */
  readonly root: string;
  /** Changes what the host has. */
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
