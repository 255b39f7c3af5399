"""Contracts: files that map another API's requests and responses onto the gateway's, without code."""
