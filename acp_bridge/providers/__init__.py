"""Remote OpenAI-compatible endpoints (vLLM, llama-server, Ollama, clouds), called by the bridge, not by modeld."""
