export const CHANNEL = "dispatch_policy";

/** What this package's SQL tells the tick loops. */
export interface Notification {
  readonly schema: string;
  readonly policy: string;
  /** Only the loop of this shard has something to do. */
  readonly shard?: string;
  /** It has no leader: its leader stepped down, or there was none. */
  readonly vacant?: boolean;
}

/** Anybody may notify on the channel: what is not ours is undefined. */
export function readNotification(payload: string | undefined, schema: string): Notification | undefined {
  try {
    const said = JSON.parse(payload ?? "");
    return said?.schema === schema ? said : undefined;
  } catch {
    return undefined;
  }
}
