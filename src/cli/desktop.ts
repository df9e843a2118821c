/** The user's desktop, and its browser. */

import { spawn } from "node:child_process";

/** True on a terminal of a desktop, false over SSH. */
export function hasDesktop(): boolean {
  const { SSH_CONNECTION, DISPLAY, WAYLAND_DISPLAY } = process.env;
  if (!process.stdout.isTTY || SSH_CONNECTION !== undefined) return false;
  return process.platform !== "linux" || DISPLAY !== undefined || WAYLAND_DISPLAY !== undefined;
}

/** Opens the system's browser. Errors are ignored, because the address is already printed. */
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
