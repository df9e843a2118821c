/** The desktop that a command may have been started on, and its browser. */

import { spawn } from "node:child_process";

/** A person sits before this machine, not at the other end of a line. */
export function hasDesktop(): boolean {
  const { SSH_CONNECTION, DISPLAY, WAYLAND_DISPLAY } = process.env;
  if (!process.stdout.isTTY || SSH_CONNECTION !== undefined) return false;
  return process.platform !== "linux" || DISPLAY !== undefined || WAYLAND_DISPLAY !== undefined;
}

/** As the system does it; where it can't, the address is printed already. */
export function openBrowser(url: string): void {
  const [command, ...args] =
    process.platform === "darwin"
      ? ["open", url]
      : process.platform === "win32"
        ? ["rundll32", "url.dll,FileProtocolHandler", url]
        : ["xdg-open", url];
  if (command === undefined) return;
  const child = spawn(command, args, { detached: true, stdio: "ignore" });
  child.once("error", () => undefined);
  child.unref();
}
