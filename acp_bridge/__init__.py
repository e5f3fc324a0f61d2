"""The editor process: shows local models in the editor's picker and forwards turns to modeld."""
