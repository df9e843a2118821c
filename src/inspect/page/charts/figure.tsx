/** The frame of every figure: its name, what it means, its unit, what can be taken out of it, and what is said where it is empty. */

import type { ComponentChildren, RefObject } from "preact";
import { useId } from "preact/hooks";
import type { ChartHandle } from "./chart.js";

export interface Action {
  readonly label: string;
  readonly title: string;
  readonly run: () => void;
}

export interface FigureProps {
  readonly title: string;
  /** One line under the title: what is seen, in which unit. */
  readonly caption: string;
  /** What it means and how to read it, behind an "i". */
  readonly hint?: string;
  readonly actions?: readonly Action[];
  /** Switches that belong to it. */
  readonly controls?: ComponentChildren;
  /** What is missing and why, in place of the figure. */
  readonly empty?: string | undefined;
  readonly isWide?: boolean;
  readonly children?: ComponentChildren;
}

export function Figure(props: FigureProps) {
  const { title, caption, hint, actions = [], controls, empty, isWide = false, children } = props;
  const id = useId();
  return (
    <section class={isWide ? "figure wide" : "figure"} aria-labelledby={id} data-figure={title}>
      <header>
        <h2 id={id}>{title}</h2>
        {hint === undefined ? null : <Hint about={title} text={hint} />}
        <div class="actions">
          {empty === undefined
            ? actions.map(({ label, title: told, run }) => (
                <button type="button" class="small" key={label} title={told} onClick={run}>
                  {label}
                </button>
              ))
            : null}
        </div>
      </header>
      <p class="caption">{caption}</p>
      {empty === undefined && controls ? <div class="controls">{controls}</div> : null}
      {empty === undefined ? children : <p class="empty">{empty}</p>}
    </section>
  );
}

export function Hint({ about, text }: { readonly about: string; readonly text: string }) {
  return (
    <details class="hint">
      <summary aria-label={`What “${about}” means`}>i</summary>
      <p>{text}</p>
    </details>
  );
}

/** Saves a chart as a picture, under the run's name and its own. */
export function pictureAction(chart: RefObject<ChartHandle | null>, run: string, title: string): Action {
  const save = async (): Promise<void> => {
    const blob = await chart.current?.picture();
    if (blob) download(fileName(run, `${title}.png`), blob);
  };
  return { label: "PNG", title: "Save this chart as a picture", run: () => void save() };
}

/** Hands a file to the reader. */
export function download(name: string, content: Blob | string, type = "text/csv"): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A file's name from words. */
export function fileName(...words: readonly string[]): string {
  return words
    .join("-")
    .toLowerCase()
    .replace(/[^a-z0-9.]+/g, "-")
    .replace(/^-+|-+$/g, "");
}
