/** The page: the list of runs, the header of the selected run, and its tabs. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { AboutView } from "./about-view.js";
import { assignLooks } from "./charts/palette.js";
import { InkContext, useTheme } from "./charts/theme.js";
import { ErrorBoundary } from "./error-boundary.js";
import { HelpDialog } from "./help-dialog.js";
import { useIsNarrow, useRoute, useShortcuts } from "./navigation.js";
import { MemoryView } from "./plan/memory-view.js";
import type { Route } from "./route.js";
import { IncidentsView } from "./runs/incidents-view.js";
import { LearningView } from "./runs/learning-view.js";
import { RunHead } from "./runs/run-head.js";
import { RunList } from "./runs/run-list.js";
import { SpeedView } from "./runs/speed-view.js";
import { useStepTables } from "./runs/step-tables.js";
import { runPath, useDetails, useFetched, useIsLost, useRun, useRuns } from "./server.js";
import { Tabs } from "./tabs.js";
import type { MemorySample, RunLine } from "./wire.js";

export function App() {
  const theme = useTheme();
  const isLost = useIsLost();
  const { answer: runs, rejection } = useRuns();
  const [route, go] = useRoute(runs);
  const [isHelpOpen, setHelpOpen] = useState(false);
  const isNarrow = useIsNarrow();
  useShortcuts(route, go, () => setHelpOpen(true));
  const looks = useMemo(
    () => assignLooks([...(route.run === undefined ? [] : [route.run]), ...route.others]),
    [route.run, route.others.join("\n")],
  );
  const compare = (name: string, isWanted: boolean): void =>
    go({
      ...route,
      others: isWanted ? [...route.others, name] : route.others.filter((other) => other !== name),
    });

  return (
    <InkContext.Provider value={theme.ink}>
      <div class="layout">
        <aside>
          <div class="brand">
            <a href="#/" class="name">
              Holdfast <span>inspector</span>
            </a>
            <button type="button" class="small" title="Light, dark, or system theme" onClick={theme.next}>
              {{ system: "Auto", light: "Light", dark: "Dark" }[theme.choice]}
            </button>
            <button
              type="button"
              class="small"
              aria-label="Help"
              title="Keyboard shortcuts (?)"
              onClick={() => setHelpOpen(true)}
            >
              ?
            </button>
          </div>
          {runs && runs.length > 0 ? (
            <details class="run-list" open={!isNarrow}>
              <summary>
                Runs <small>tick to compare</small>
              </summary>
              <RunList runs={runs} route={route} looks={looks} onCompare={compare} />
            </details>
          ) : null}
        </aside>
        <main>
          <div aria-live="polite">
            {isLost ? (
              <p class="banner lost">
                Connection lost, retrying. The page shows the last data that it received.
              </p>
            ) : null}
            {rejection ? <p class="banner">{rejection}</p> : null}
          </div>
          {runs === undefined && !rejection ? <p class="empty large">Reading the runs…</p> : null}
          {runs?.length === 0 ? (
            <p class="empty large">
              No runs yet. <code>holdfast train crossasset --out runs/first</code> makes one; it appears here
              when it starts.
            </p>
          ) : null}
          {route.run === undefined ? null : (
            <RunPage
              key={route.run}
              name={route.run}
              line={runs?.find(({ name }) => name === route.run)}
              route={route}
              looks={looks}
              go={go}
            />
          )}
        </main>
      </div>
      <HelpDialog isOpen={isHelpOpen} onClose={() => setHelpOpen(false)} />
    </InkContext.Provider>
  );
}

interface RunPageProps {
  readonly name: string;
  readonly line: RunLine | undefined;
  readonly route: Route;
  readonly looks: ReturnType<typeof assignLooks>;
  readonly go: (route: Route) => void;
}

function RunPage({ name, line, route, looks, go }: RunPageProps) {
  const live = useRun(name);
  const { detail, status } = live;
  const compared = useMemo(() => [name, ...route.others], [name, route.others.join("\n")]);
  const tables = useStepTables(compared, live.rows);
  const { answer: samples = noSamples } = useFetched<readonly MemorySample[]>(
    runPath(name, "/memory"),
    live.memoryVersion,
  );
  const details = useDetails(route.others);
  const others = useMemo(
    () =>
      new Map(
        route.others.flatMap((other) => (details.has(other) ? [[other, details.get(other)]] : [])) as never,
      ),
    [details, route.others.join("\n")],
  ) as ReadonlyMap<string, NonNullable<typeof detail>>;
  useEffect(() => {
    document.title = `${name} – Holdfast inspector`;
  }, [name]);

  if (!detail) {
    const message = live.rejection ?? line?.note;
    return message ? <p class="banner">{message}</p> : <p class="empty large">Reading {name}…</p>;
  }
  const { tab } = route;
  const messages = [...new Set([...detail.messages, ...(line?.note ? [line.note] : [])])];
  return (
    <>
      {messages.length > 0 ? (
        <div class="banner" role="alert">
          <b>Some files of this run can’t be read. The rest is shown.</b>
          <ul>
            {messages.map((message) => (
              <li key={message}>{message}</li>
            ))}
          </ul>
        </div>
      ) : null}
      <RunHead
        detail={detail}
        status={status}
        isLive={status?.state === "running" && (line?.isLive ?? true)}
        table={tables.whole.get(name)}
        memory={samples.at(-1)}
      />
      <Tabs tab={tab} incidents={detail.incidents.length} onTab={(next) => go({ ...route, tab: next })} />
      <div id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        <ErrorBoundary key={tab}>
          {tab === "learning" ? (
            <LearningView detail={detail} others={others} tables={tables} looks={looks} />
          ) : null}
          {tab === "speed" ? (
            <SpeedView
              detail={detail}
              others={others}
              tables={tables}
              looks={looks}
              planVersion={live.planVersion}
              rankVersion={live.rankVersion}
            />
          ) : null}
          {tab === "memory" ? (
            <MemoryView detail={detail} samples={samples} planVersion={live.planVersion} />
          ) : null}
          {tab === "incidents" ? <IncidentsView detail={detail} /> : null}
          {tab === "about" ? <AboutView detail={detail} status={status} /> : null}
        </ErrorBoundary>
      </div>
    </>
  );
}

const noSamples: readonly MemorySample[] = [];
