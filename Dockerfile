# The image of `serve` and of the container that copies the plugin (docs/deploy/kubernetes.md).
# Needs the wheels of `make wheel` or `make release` in dist/.
FROM python:3.12-slim
COPY dist/*.whl /wheels/
RUN pip install --no-cache-dir /wheels/ncclscope-*_"$(uname -m)".whl && rm -r /wheels \
    && mkdir -p /captures /opt/ncclscope && cp "$(ncclscope plugin-path)" /opt/ncclscope/
EXPOSE 9479
ENTRYPOINT ["ncclscope"]
CMD ["serve", "/captures", "--host", "0.0.0.0"]
