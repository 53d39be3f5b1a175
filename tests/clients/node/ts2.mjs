// Drives the official TypeScript client 2.x. Mode auto: discover and listen; legacy: initialize and subscribe.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { asking, assert, headers, main, options, step, watching, WATCHED } from './common.mjs';

main(async () => {
  const inbox = [];
  const errors = [];
  const client = new Client({ name: 'acceptance', version: '1' }, {
    capabilities: {}, versionNegotiation: { mode: options.mode },
  });
  client.onerror = (error) => errors.push(error.message);
  client.setNotificationHandler('notifications/resources/updated', (n) => { inbox.push(['updated', n.params.uri]); });
  client.setNotificationHandler('notifications/resources/list_changed', () => { inbox.push(['list_changed']); });
  const transport = new StreamableHTTPClientTransport(new URL(options.url), { requestInit: { headers } });
  const read = async (uri) => (await client.readResource({ uri }, { cacheMode: 'bypass' })).contents[0];
  let isModern = false;
  await step('connect', async () => {
    await client.connect(transport);
    const version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
    isModern = version === '2026-07-28';
    assert(isModern === (options.mode === 'auto'), `negotiated ${version}`);
    assert(client.getServerCapabilities()?.resources, 'no resources capability');
  });
  // It shows the handshake era's -32002 as -32602.
  await asking(client, read, [-32602]);
  let listening;
  await watching(
    read, inbox, errors,
    async () => {
      if (!isModern) return client.subscribeResource({ uri: WATCHED });
      listening = await client.listen({ resourceSubscriptions: [WATCHED], resourcesListChanged: true });
      assert(listening.honoredFilter.resourceSubscriptions?.includes(WATCHED), JSON.stringify(listening.honoredFilter));
    },
    () => (isModern ? listening.close() : client.unsubscribeResource({ uri: WATCHED })),
    { endsAll: isModern },
  );
  await step('close', async () => {
    await transport.terminateSession();
    await client.close();
  });
});
