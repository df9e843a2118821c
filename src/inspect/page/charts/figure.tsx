/** The frame of every figure: title, caption, help, exports, and a message if it is empty. */

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
  /** One line under the title: the contents and the unit. */
  readonly caption: string;
  /** Help text in the "i" popup. */
  readonly hint?: string;
  readonly actions?: readonly Action[];
  /** Controls of the figure. */
  readonly controls?: ComponentChildren;
  /** A message instead of the figure if data is missing. */
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
            ? actions.map(({ label, title: tooltip, run }) => (
                <button type="button" class="small" key={label} title={tooltip} onClick={run}>
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

/** Saves a chart as an image, named after the run and the chart. */
export function pictureAction(chart: RefObject<ChartHandle | null>, run: string, title: string): Action {
  const save = async (): Promise<void> => {
    const blob = await chart.current?.picture();
    if (blob) download(fileName(run, `${title}.png`), blob);
  };
  return { label: "PNG", title: "Save this chart as an image", run: () => void save() };
}

/** Downloads a file. */
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
