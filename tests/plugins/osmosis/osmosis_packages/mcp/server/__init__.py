from .mcp_server import mcp
