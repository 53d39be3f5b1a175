// Drives the official TypeScript SDK 1.x: 2025-11-25.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { asking, assert, headers, main, options, step, watching, WATCHED } from './common.mjs';

main(async () => {
  const inbox = [];
  const errors = [];
  const client = new Client({ name: 'acceptance', version: '1' }, { capabilities: {} });
  client.onerror = (error) => errors.push(error.message);
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => { inbox.push(['updated', n.params.uri]); });
  client.setNotificationHandler(ResourceListChangedNotificationSchema, () => { inbox.push(['list_changed']); });
  const transport = new StreamableHTTPClientTransport(new URL(options.url), { requestInit: { headers } });
  const read = async (uri) => (await client.readResource({ uri })).contents[0];
  await step('connect', async () => {
    await client.connect(transport);
    assert(client.getServerCapabilities()?.resources, 'no resources capability');
    assert(transport.protocolVersion === '2025-11-25', `negotiated ${transport.protocolVersion}`);
  });
  await asking(client, read, [-32002]);
  await step('ping', () => client.ping());
  await watching(
    read, inbox, errors,
    () => client.subscribeResource({ uri: WATCHED }),
    () => client.unsubscribeResource({ uri: WATCHED }),
    { endsAll: false },
  );
  await step('close', async () => {
    await transport.terminateSession();
    await client.close();
  });
});
