/**
 * A real browser for tests: the subset of playwright-core that they use. Its types refer to those of a
 * document, which code for Node must not see. So the subset is typed here, and code for the page is text.
 */

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { generousTimeoutMs } from "./timeouts.js";

export interface Locator {
  locator(selector: string, options?: { readonly hasText?: string }): Locator;
  getByText(text: string | RegExp, options?: { readonly exact?: boolean }): Locator;
  getByLabel(text: string): Locator;
  getByRole(role: string, options: { readonly name: string; readonly exact?: boolean }): Locator;
  first(): Locator;
  count(): Promise<number>;
  click(): Promise<void>;
  check(): Promise<void>;
  uncheck(): Promise<void>;
  fill(text: string): Promise<void>;
  focus(): Promise<void>;
  innerText(): Promise<string>;
  getAttribute(name: string): Promise<string | null>;
  boundingBox(): Promise<Box | null>;
  scrollIntoViewIfNeeded(): Promise<void>;
  waitFor(options?: { readonly state?: "attached" | "detached" | "visible" | "hidden" }): Promise<void>;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Page extends Omit<Locator, "first" | "click" | "fill" | "focus" | "waitFor"> {
  readonly keyboard: {
    press(key: string): Promise<void>;
    type(text: string): Promise<void>;
  };
  readonly mouse: {
    move(x: number, y: number, options?: { readonly steps?: number }): Promise<void>;
    down(): Promise<void>;
    up(): Promise<void>;
    wheel(x: number, y: number): Promise<void>;
    dblclick(x: number, y: number): Promise<void>;
  };
  goto(url: string): Promise<unknown>;
  reload(): Promise<unknown>;
  url(): string;
  /** The value of an expression in the page. */
  evaluate(expression: string): Promise<unknown>;
  waitForEvent(event: "download"): Promise<Download>;
  setDefaultTimeout(ms: number): void;
  setViewportSize(size: { readonly width: number; readonly height: number }): Promise<void>;
  emulateMedia(options: { readonly colorScheme: "light" | "dark" }): Promise<void>;
  on(event: "pageerror", listen: (error: Error) => void): void;
  on(event: "console", listen: (message: ConsoleMessage) => void): void;
  screenshot(options: { readonly path: string; readonly fullPage?: boolean }): Promise<unknown>;
}

export interface ConsoleMessage {
  type(): string;
  text(): string;
  location(): { readonly url: string };
}

export interface Download {
  suggestedFilename(): string;
  createReadStream(): Promise<AsyncIterable<Buffer>>;
}

export interface BrowserContext {
  newPage(): Promise<Page>;
  close(): Promise<void>;
}

export interface ContextOptions {
  readonly viewport: { readonly width: number; readonly height: number };
  readonly colorScheme: "light" | "dark";
}

interface Browser {
  newContext(options: ContextOptions): Promise<BrowserContext>;
  close(): Promise<void>;
}

interface LaunchOptions {
  readonly executablePath: string;
  readonly args: readonly string[];
  readonly timeout: number;
}

interface Playwright {
  readonly chromium: {
    launch(options: LaunchOptions): Promise<Browser>;
  };
}

/** The headless shell comes first: it uses a third less processor time than the whole browser. */
const paths = [
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];
const path = paths.find((candidate) => existsSync(candidate));

/** The reason for skipping a test that needs a browser. */
export const needsBrowser = path === undefined ? { skip: "no Chromium here" } : {};

let opened: Promise<Browser> | undefined;

/** One browser for all tests of a process. */
export async function openContext(options: ContextOptions): Promise<BrowserContext> {
  const { chromium } = createRequire(import.meta.url)("playwright-core") as Playwright;
  opened ??= chromium.launch({
    ...{ executablePath: path ?? "chromium", args: ["--no-sandbox"], timeout: generousTimeoutMs },
  });
  return (await opened).newContext(options);
}

export async function closeBrowser(): Promise<void> {
  await (await opened)?.close();
  opened = undefined;
}
