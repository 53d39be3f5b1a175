"""The shell commands of `broker`: thin shells around the publisher's API and the server."""
